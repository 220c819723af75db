"""Takes apart what a module answers with: every tensor under a name that follows from the structure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from repobuild.errors import InputInvalid, evidence

SINGLE = "output"


class Unnameable(Exception):
    """Raised for a part of an answer that is neither tensor nor structure, with its place and type."""


def tensors_of(answer: Any) -> dict[str, Any]:
    """The tensors of an answer by name, in the order of the structure.

    A lone tensor is ``output``, items of a tuple or list are ``output_0`` and so on, entries of a mapping,
    dataclass or named tuple bear their keys, and inner structures join the parts with ``_``. ``None``,
    numbers, flags and texts are left out, see :func:`others_of`.

    Raises:
        Unnameable: A part is of another kind.
        InputInvalid: Two tensors get one name.
    """
    import torch

    found: dict[str, Any] = {}
    for name, tensor in _walk(answer, ""):
        if not isinstance(tensor, torch.Tensor):
            continue
        if name in found:
            raise InputInvalid(
                "output-names-clash",
                f"two tensors of the answer are called '{name}'",
                evidence([f"the names are {', '.join(found)}"]),
                "return a dict with keys of your own",
            )
        found[name] = tensor
    return found


def others_of(answer: Any) -> dict[str, str]:
    """Names and types of the numbers, flags and texts of an answer, which no tensor carries.

    Raises:
        Unnameable: A part is of another kind.
    """
    import torch

    found = ((n, p) for n, p in _walk(answer, "") if not isinstance(p, torch.Tensor))
    return {name: type(part).__name__ for name, part in found}


def expressions_of(answer: Any, start: str = "o") -> list[str]:
    """Python expressions that take the tensors out of an answer, in the order of :func:`tensors_of`.

    Args:
        answer: An answer of mappings, lists and tuples, as TorchScript has them.
        start: The expression of the answer itself.

    Raises:
        Unnameable: A part is of another kind.
    """
    import torch

    if isinstance(answer, torch.Tensor):
        return [start]
    if answer is None or isinstance(answer, bool | int | float | str):
        return []
    if isinstance(answer, Mapping):
        return [e for k, v in answer.items() for e in expressions_of(v, f"{start}[{k!r}]")]
    if isinstance(answer, list | tuple):
        return [e for i, v in enumerate(answer) for e in expressions_of(v, f"{start}[{i}]")]
    raise Unnameable(f"{start} is a {type(answer).__module__}.{type(answer).__qualname__}")


def _walk(part: Any, path: str) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(part, torch.Tensor | bool | int | float | str | bytes | _symbols()):
        yield path or SINGLE, part
    elif part is None or isinstance(part, torch.dtype | torch.device):
        return
    else:
        inside = _inside(part)
        if inside is None:
            kind = f"{type(part).__module__}.{type(part).__qualname__}"
            raise Unnameable(f"{path or 'the answer'} is a {kind}")
        by_key, parts = inside
        for key, inner in parts:
            start = path if path or by_key else SINGLE
            yield from _walk(inner, f"{start}_{key}" if start else str(key))


def _inside(part: Any) -> tuple[bool, list[tuple[Any, Any]]] | None:
    """Whether parts have keys, and the parts; ``None`` for what is no structure."""
    if isinstance(part, Mapping):
        return True, list(part.items())
    fields = getattr(part, "_fields", None)
    if fields is not None and isinstance(part, tuple):
        return True, list(zip(fields, part, strict=True))
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return True, [(f.name, getattr(part, f.name)) for f in dataclasses.fields(part)]
    if isinstance(part, list | tuple):
        return False, list(enumerate(part))
    return _registered(part)


def _registered(part: Any) -> tuple[bool, list[tuple[Any, Any]]] | None:
    """The parts of a class that is registered with PyTorch's pytrees, such as a cache of transformers."""
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten(part)
    if len(leaves) == 1 and leaves[0] is part:
        return None
    del spec
    return False, list(enumerate(leaves))


def _symbols() -> Any:
    """What exporters put in place of numbers that follow from sizes or values."""
    import torch

    return torch.SymInt | torch.SymFloat | torch.SymBool
