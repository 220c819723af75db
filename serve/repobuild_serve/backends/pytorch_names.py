"""From the tensor names of a config to positions in a PyTorch model (Triton contract, PyTorch backend)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from typing import Any

from repobuild_serve.errors import LoadError

_LOG = logging.getLogger(__name__)
_ORDINAL = {"input": re.compile(r"INPUT__([0-9]+)"), "output": re.compile(r"OUTPUT__([0-9]+)")}


def script_positions(model: str, role: str, names: Sequence[str], arguments: Sequence[str]) -> list[int]:
    """Position of each named tensor of a TorchScript model.

    Names are, all of one kind: the arguments of ``forward`` (inputs only), else ``<name>__<index>``, else
    anything, in the order of the config. The index is all that stands behind the first ``__``, where nothing
    counts as 0 (pytorch_backend, GetNamingConvention, the same on branches r24.01 to r26.05).

    Args:
        model: Model name.
        role: ``"input"`` or ``"output"``.
        names: Names of the config.
        arguments: Argument names of ``forward``; empty for outputs.

    Raises:
        LoadError: Two names are for one position, or one lies beyond the arguments.
    """
    found = [_index(name) for name in names]
    if arguments and all(name in arguments for name in names):
        positions = [arguments.index(name) for name in names]
    elif all(index is not None for index in found):
        positions = [index for index in found if index is not None]
    else:
        _LOG.warning(
            "model %s: its %ss %s are neither arguments of forward nor all of the form <name>__<index>, "
            "and are "
            "taken in the order of the configuration",
            model,
            role,
            ", ".join(names),
        )
        positions = list(range(len(names)))
    if len(set(positions)) < len(positions):
        raise _wrong(model, f"two {role}s of the configuration are for the same {role} of the model")
    if arguments and max(positions, default=0) >= len(arguments):
        name = names[positions.index(max(positions))]
        raise _wrong(model, f"{role} '{name}' refers to an argument which doesn't exist: {_list(arguments)}")
    return positions


def _index(name: str) -> int | None:
    _, mark, index = name.partition("__")
    numbered = mark and (not index or (index.isascii() and index.isdigit()))
    return int(index or "0") if numbered else None


def path_positions(
    model: str, role: str, names: Sequence[str], paths: Sequence[str], aliases: Sequence[str] = ()
) -> list[int]:
    """Position of each named tensor among the leaves of a PT2 model's call specification.

    Args:
        model: Model name.
        role: ``"input"`` or ``"output"``.
        names: Names of the config, e.g. ``INPUT__0``, ``ARGS[0]``, ``KWARGS[x]``, ``RESULT[a][1]``.
        paths: Path of each leaf, in order.
        aliases: Further names of the leaves, in the same order; may be empty.

    Raises:
        LoadError: A name is none of the model's, two are for one leaf, or an input is left out.
    """
    positions = []
    for name in names:
        ordinal = _ORDINAL[role].fullmatch(name)
        if name in paths:
            positions.append(paths.index(name))
        elif ordinal and int(ordinal.group(1)) < len(paths):
            positions.append(int(ordinal.group(1)))
        elif name in aliases:
            positions.append(aliases.index(name))
        else:
            raise _wrong(
                model,
                f"{role} '{name}' is not found in the model, whose {role}s are {_list(paths)}, or by number "
                f"{role.upper()}__0 to {role.upper()}__{len(paths) - 1}",
            )
    if len(set(positions)) < len(positions):
        raise _wrong(model, f"two {role}s of the configuration are for the same {role} of the model")
    if role == "input" and len(positions) != len(paths):
        raise _wrong(
            model,
            f"configuration expects {len(positions)} inputs, but model expects {len(paths)} inputs: "
            f"{_list(paths)}",
        )
    return positions


def leaf_paths(specification: str, prefixes: Sequence[str]) -> list[str]:
    """Paths of the leaves of a call specification as PyTorch writes it in JSON.

    Args:
        specification: ``[version, tree]``.
        prefixes: One for each child of the root, or a single one for the root itself.

    Raises:
        ValueError: It has nodes other than tuples, lists and dicts.
    """
    _, root = json.loads(specification)
    if len(prefixes) == 1:
        return _paths(root, prefixes[0])
    pairs = zip(root["children_spec"], prefixes, strict=True)
    return [path for child, prefix in pairs for path in _paths(child, prefix)]


def _paths(node: dict[str, Any], path: str) -> list[str]:
    kind = node["type"]
    if kind is None:
        return [path]
    if kind == "builtins.dict":
        keys: Sequence[Any] = json.loads(node["context"])
    elif kind in {"builtins.tuple", "builtins.list"}:
        keys = range(len(node["children_spec"]))
    else:
        raise ValueError(f"{path} is of type {kind}; only tensors, tuples, lists and dicts can be served")
    pairs = zip(keys, node["children_spec"], strict=True)
    return [inner for key, child in pairs for inner in _paths(child, f"{path}[{key}]")]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


def _wrong(model: str, text: str) -> LoadError:
    return LoadError(f"unable to load model '{model}', {text}")
