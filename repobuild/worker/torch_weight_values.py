"""Whether the values of weights survive what a module makes of them: its types, and its shared parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def spoilt(weights: Mapping[str, Any], want: Mapping[str, Any]) -> Iterator[str]:
    """Why weights cannot become those of a module: values that are not there, or that its types do not hold.

    Rounding to a narrower floating-point type is no loss in this sense; a note tells of it.

    Args:
        weights: Tensors by key, fitting ``want`` in keys and shapes.
        want: The module's own.

    Returns:
        A line for each key.
    """
    for key, tensor in want.items():
        have = weights[key]
        if have.is_meta:
            yield f"{key} has a shape and no values (device meta)"
        elif have.dtype != tensor.dtype and not tensor.is_meta and _lossy(have, tensor.dtype):
            yield f"{key} is {have.dtype}, and {tensor.dtype} of the module does not hold its values"


def _lossy(have: Any, wanted: Any) -> bool:
    import torch

    if have.is_quantized or have.layout != torch.strided:
        return False
    if have.is_complex() and not wanted.is_complex:
        return True
    made = have.to(wanted)
    if wanted.is_complex or not have.numel():
        return False
    if wanted.is_floating_point:
        return bool((torch.isinf(made.double()) & torch.isfinite(have.double())).any())
    return not torch.equal(made.to(have.dtype), have)


def parted(weights: Mapping[str, Any], ties: Sequence[Sequence[str]]) -> Iterator[str]:
    """Names of one shared parameter under which a file holds different values.

    Args:
        weights: Tensors by key.
        ties: Names of each parameter that has several.

    Returns:
        A line for each name whose values are not those of the first.
    """
    for names in ties:
        first, *others = [n for n in names if n in weights]
        yield from (
            f"{first} and {name} are one parameter of the module, and differ in the file"
            for name in others
            if not alike(weights[first], weights[name])
        )


def alike(left: Any, right: Any) -> bool:
    """Whether two tensors hold the same, NaN being equal to NaN."""
    import torch

    if left is right or (left.dtype, left.shape, left.device) != (right.dtype, right.shape, right.device):
        return left is right
    if left.is_meta or left.is_quantized or left.layout != torch.strided:
        return True
    same = left == right
    if left.is_floating_point() or left.is_complex():
        same |= left.isnan() & right.isnan()
    return bool(same.all())
