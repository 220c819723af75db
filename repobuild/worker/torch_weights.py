"""Reads weights without running code, and fits them to a module or names the keys that do not fit."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import EnvironmentLacking, Evidence, InputInvalid, evidence
from repobuild.worker.loading import first_line

WRAPPERS = ("state_dict", "model_state_dict", "model", "weights", "net", "ema", "params")
"""Keys under which training loops and Lightning put the weights of a checkpoint."""

PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "_forward_module.")
"""What DataParallel, torch.compile, Lightning and DeepSpeed put before every key."""

SHOWN_KEYS = 12


def read_weights(path: Path, given: str) -> Any:
    """What a weights file holds; tensors in zip archives stay on the disk until they are used.

    Raises:
        InputInvalid: It is damaged, or holds what is no weights.
        EnvironmentLacking: safetensors is not installed.
    """
    import torch

    with path.open("rb") as stream:
        head = stream.read(16)
    try:
        if head.startswith(b"PK"):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if head[8:9] == b"{":
            return _safetensors(path, given)
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as problem:
        raise InputInvalid(
            "weights-unreadable",
            f"{given} is not read, since it holds more than weights",
            (Evidence(first_line(problem), file=given),),
            "save the weights alone: torch.save(model.state_dict(), path)",
        ) from None
    except EnvironmentLacking:
        raise
    except (RuntimeError, OSError, EOFError, ValueError, KeyError) as problem:
        raise InputInvalid(
            "model-damaged",
            f"{given} cannot be read: it is damaged or incomplete",
            (Evidence(f"{type(problem).__name__}: {first_line(problem)}", file=given),),
            "save the weights again, or fetch the file again",
        ) from problem


def _safetensors(path: Path, given: str) -> Any:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise EnvironmentLacking(
            "torch-missing",
            f"{given} needs packages that are not installed here",
            evidence(["not installed: safetensors"]),
            "pip install 'repobuild[torch]'",
        ) from None
    try:
        return load_file(path)
    except SafetensorError as problem:
        raise InputInvalid(
            "model-damaged",
            f"{given} cannot be read: it is damaged or incomplete",
            (Evidence(first_line(problem), file=given),),
            "save the weights again, or fetch the file again",
        ) from None


def fit_weights(module: Any, found: Any, given: str) -> Iterator[str]:
    """Load weights into a module.

    Weights in a checkpoint, or under a prefix that every key has, are taken from there if they then fit; a
    note says so.

    Args:
        module: The module; changed in place.
        found: What the file holds.
        given: The file as the recipe has it.

    Returns:
        Notes.

    Raises:
        InputInvalid: Keys are missing or left over, or shapes differ; all of them are named.
    """
    want = module.state_dict()
    ties = list(_ties(module))
    tried = [(_with_tied(weights, want, ties), note) for weights, note in _readings(found)]
    if not any(weights for weights, _ in tried) and want:
        raise InputInvalid(
            "weights-unreadable",
            f"{given} holds no weights",
            (Evidence(f"it holds {_kind(found)}", file=given),),
            "save the weights alone: torch.save(model.state_dict(), path)",
        )
    for weights, note in tried:
        if weights.keys() == want.keys() and not _misshapen(weights, want):
            try:
                module.load_state_dict(weights, assign=_same_types(weights, want))
            except RuntimeError as problem:
                raise _unfit(given, [first_line(problem)]) from problem
            yield from (note,) if note else ()
            yield from _narrowed(weights, want)
            _tie(module, ties)
            return
    best, _ = min(tried, key=lambda item: len(item[0].keys() ^ want.keys()))
    raise _unfit(given, _told(best, want))


def _ties(module: Any) -> Iterator[list[str]]:
    """Names under which one parameter is found, for those that have several."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    yield from (found for found in names.values() if len(found) > 1)


def _with_tied(
    weights: Mapping[str, Any], want: Mapping[str, Any], ties: Sequence[Sequence[str]]
) -> Mapping[str, Any]:
    """The weights, with those that safetensors leaves out since they are another name of a shared one."""
    added = {}
    for names in ties:
        have = next((weights[n] for n in names if n in weights), None)
        if have is not None:
            added.update({n: have for n in names if n in want and n not in weights})
    return {**weights, **added}


def _tie(module: Any, ties: Sequence[Sequence[str]]) -> None:
    """Let parameters be shared again, since assigning each key by itself parts them."""
    for first, *others in ties:
        shared = module.get_parameter(first)
        for name in others:
            owner, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(owner), attribute, shared)


def _readings(found: Any) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Ways in which a file may hold a module's weights, the plainest first."""
    plain = list(_nested(found))
    yield from plain
    for weights, note in plain:
        for prefix in PREFIXES:
            if weights and all(k.startswith(prefix) for k in weights):
                stripped = {k.removeprefix(prefix): v for k, v in weights.items()}
                said = f"the weights' keys begin with '{prefix}', which was taken off"
                yield stripped, f"{note}; {said}" if note else said


def _nested(found: Any) -> Iterator[tuple[Mapping[str, Any], str]]:
    import torch

    if not isinstance(found, Mapping):
        return
    if all(isinstance(v, torch.Tensor) for v in found.values()):
        yield found, ""
    for key in (*WRAPPERS, *(k for k in found if k not in WRAPPERS)):
        inner = found.get(key)
        if isinstance(inner, Mapping) and inner and all(isinstance(v, torch.Tensor) for v in inner.values()):
            yield inner, f"the weights were taken from '{key}' of the checkpoint"


def _misshapen(weights: Mapping[str, Any], want: Mapping[str, Any]) -> list[str]:
    return [
        f"{key} has shape {list(weights[key].shape)}, the module has {list(tensor.shape)}"
        for key, tensor in want.items()
        if key in weights and weights[key].shape != tensor.shape
    ]


def _same_types(weights: Mapping[str, Any], want: Mapping[str, Any]) -> bool:
    return all(weights[key].dtype == tensor.dtype for key, tensor in want.items())


def _narrowed(weights: Mapping[str, Any], want: Mapping[str, Any]) -> Iterator[str]:
    changed = sorted(
        {f"{weights[k].dtype} to {t.dtype}" for k, t in want.items() if weights[k].dtype != t.dtype}
    )
    if changed:
        yield f"the weights were converted to the module's own types ({', '.join(changed)})"


def _told(weights: Mapping[str, Any], want: Mapping[str, Any]) -> list[str]:
    missing = [k for k in want if k not in weights]
    unexpected = [k for k in weights if k not in want]
    lines = []
    if missing:
        lines.append(f"missing in the file: {_listed(missing)}")
    if unexpected:
        lines.append(f"unexpected in the file: {_listed(unexpected)}")
    return [*lines, *_misshapen(weights, want)[:SHOWN_KEYS]]


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - SHOWN_KEYS} more" if len(keys) > SHOWN_KEYS else ""
    return f"{', '.join(keys[:SHOWN_KEYS])}{more}"


def _unfit(given: str, lines: list[str]) -> InputInvalid:
    return InputInvalid(
        "weights-unfit",
        f"the weights in {given} are not those of the module",
        tuple(Evidence(line, file=given) for line in lines),
        "name the class and the kwargs that the model was trained with under source.module",
    )


def _kind(found: Any) -> str:
    if isinstance(found, Mapping):
        keys = ", ".join(map(str, list(found)[:SHOWN_KEYS]))
        return f"a mapping with the keys {keys}" if keys else "an empty mapping"
    return f"{type(found).__module__}.{type(found).__qualname__}"
