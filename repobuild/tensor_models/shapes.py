"""Which axes of the outputs are fixed: those of which the graph says so and that every run confirms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from repobuild.selection import Selection

if TYPE_CHECKING:
    from onnx import ModelProto

Dims = tuple[int | None, ...]


def declared_dims(model: ModelProto) -> dict[str, Dims | None]:
    """The shape that a graph declares of each output; ``None`` for an output of unknown rank."""
    found: dict[str, Dims | None] = {}
    for value in model.graph.output:
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            found[value.name] = None
            continue
        found[value.name] = tuple(
            d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in tensor.shape.dim
        )
    return found


def emitted_axes(
    declared: Dims | None,
    selection: Selection,
    seen: Sequence[tuple[int, ...]],
    *,
    batched: bool,
    derived: Dims | None = None,
) -> Dims:
    """The axes of an output as they are emitted.

    An axis is fixed only if the graph declares it or its runtime derives it, and no run contradicts; what was
    merely seen is free, since other values may give another size.

    Args:
        declared: Shape of the answer behind the output.
        selection: The part of it that is served.
        seen: Shapes of the output in every run, with the axes that were added.
        batched: Whether axis 0 is the batch axis, which is free.
        derived: Shape of the output itself as the runtime derives it, ``None`` if it does not.
    """
    lowest = 2 if batched else 1
    rank = len(seen[0])
    known: list[int | None] = [None] * rank
    if declared is not None:
        picked = _selected(declared, selection)
        picked.extend([1] * (lowest - len(picked)))
        if len(picked) == rank:
            known = picked
    if derived is not None and len(derived) == rank:
        known = [d if k is None else k for k, d in zip(known, derived, strict=True)]
    if batched:
        known[0] = None
    return tuple(
        size if size is not None and all(len(s) == rank and s[axis] == size for s in seen) else None
        for axis, size in enumerate(known)
    )


def _selected(dims: Dims, selection: Selection) -> list[int | None]:
    found: list[int | None] = []
    for axis, size in enumerate(dims):
        part = selection.index[axis] if axis < len(selection.index) else slice(None)
        if isinstance(part, int):
            continue
        if part == slice(None):
            found.append(size)
        else:
            found.append(None if size is None else len(range(*part.indices(size))))
    return found
