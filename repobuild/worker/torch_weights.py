"""Reads weights without running code, and fits them to a module or names the keys that do not fit."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import EnvironmentLacking, Evidence, InputInvalid, evidence
from repobuild.worker.loading import first_line
from repobuild.worker.torch_weight_readings import WRAPPERS, Reading, readings
from repobuild.worker.torch_weight_values import alike, parted, spoilt

COUNTER = "num_batches_tracked"
"""What batch norm counts while training."""

SHOWN_KEYS = 12
SAVE_ALONE = "save the weights alone: torch.save(model.state_dict(), path)"


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
            SAVE_ALONE,
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
    tried = [(_completed(reading.weights, want, ties), reading) for reading in readings(found)]
    if not any(weights for weights, _ in tried) and want:
        raise InputInvalid(
            "weights-unreadable",
            f"{given} holds no weights",
            (Evidence(f"it holds {_kind(found)}", file=given),),
            SAVE_ALONE,
        )
    good = [(w, r) for w, r in tried if w.keys() == want.keys() and not _misshapen(w, want)]
    if not good:
        best, _ = min(tried, key=lambda item: len(item[0].keys() ^ want.keys()))
        raise _unfit(given, _told(best, want))
    weights, reading = good[0]
    yield from _notes(given, good)
    _refuse_spoilt(given, weights, want, ties)
    try:
        module.load_state_dict(weights, assign=_same_types(weights, want))
    except RuntimeError as problem:
        raise _unfit(given, [first_line(problem)]) from problem
    yield from _counters(reading.weights, weights)
    yield from _narrowed(weights, want)
    _tie(module, ties)


def _notes(given: str, good: Sequence[tuple[Mapping[str, Any], Reading]]) -> Iterator[str]:
    """Where the weights were taken from, and what else of the file would have fitted.

    Raises:
        InputInvalid: Several parts fit, hold other values, and none has a name that says what it is.
    """
    weights, reading = good[0]
    others = [
        r.key
        for w, r in good[1:]
        if r.key != reading.key and not all(alike(w[k], tensor) for k, tensor in weights.items())
    ]
    others = list(dict.fromkeys(others))
    if others and reading.key not in (*WRAPPERS, ""):
        raise InputInvalid(
            "weights-unreadable",
            f"{given} holds several sets of weights that fit the module",
            (Evidence(f"they lie under {_listed([reading.key, *others])}", file=given),),
            f"save one alone: torch.save(torch.load(path)['{reading.key}'], 'weights.pt')",
        )
    fits = f"; {_listed(others)} of it would fit too, with other values" if others else ""
    if reading.note or fits:
        yield f"{reading.note or 'the weights were taken from the file itself'}{fits}"


def _refuse_spoilt(
    given: str, weights: Mapping[str, Any], want: Mapping[str, Any], ties: Sequence[Sequence[str]]
) -> None:
    """Refuse weights that would not be the same in the module.

    Raises:
        InputInvalid: They have no values, its types do not hold them, or one parameter would have two values.
    """
    lost = list(spoilt(weights, want))
    if lost:
        raise InputInvalid(
            "weights-unfit",
            f"the module would not hold the weights in {given} as they are",
            tuple(Evidence(line, file=given) for line in lost[:SHOWN_KEYS]),
            "save the weights of the module as it was trained, in its own types and on the CPU",
        )
    two = list(parted(weights, ties))
    if two:
        raise InputInvalid(
            "weights-unfit",
            f"the weights in {given} give a shared parameter of the module two values",
            tuple(Evidence(line, file=given) for line in two[:SHOWN_KEYS]),
            "make the module without sharing them if it was trained so, or save its state_dict again",
        )


def _ties(module: Any) -> Iterator[list[str]]:
    """Names under which one parameter is found, for those that have several."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    yield from (found for found in names.values() if len(found) > 1)


def _completed(
    weights: Mapping[str, Any], want: Mapping[str, Any], ties: Sequence[Sequence[str]]
) -> Mapping[str, Any]:
    """The weights, with other names of shared ones, which safetensors leaves out, and counters of batch norm.

    PyTorch itself adds these counters to files without them; only training reads them.
    """
    added = {}
    for names in ties:
        have = next((weights[n] for n in names if n in weights), None)
        if have is not None:
            added.update({n: have for n in names if n in want and n not in weights})
    missing = [n for n in want if n not in weights and n not in added]
    if weights and missing and all(n.rpartition(".")[2] == COUNTER for n in missing):
        added.update({n: want[n] for n in missing})
    return {**weights, **added}


def _counters(found: Mapping[str, Any], weights: Mapping[str, Any]) -> Iterator[str]:
    added = [n for n in weights if n not in found and n.rpartition(".")[2] == COUNTER]
    if added:
        yield f"the weights lack counters that only training reads, which were added: {_listed(added)}"


def _tie(module: Any, ties: Sequence[Sequence[str]]) -> None:
    """Let parameters be shared again, since assigning each key by itself parts them."""
    for first, *others in ties:
        shared = module.get_parameter(first)
        for name in others:
            owner, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(owner), attribute, shared)


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
