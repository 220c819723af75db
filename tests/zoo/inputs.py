"""What the inputs of a forward are, and seeded values for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Draw = Callable[["np.random.Generator", tuple[int, ...], Mapping[str, int]], "np.ndarray"]


@dataclass(frozen=True)
class Input:
    """One argument of a forward.

    Attributes:
        axes: A number for an axis of fixed size, a label for a dynamic one; "batch" is the batch.
        draw: Gives values from a generator, the shape and the sizes of all labels.
    """

    axes: tuple[int | str, ...]
    draw: Draw

    def values(self, rng: np.random.Generator, sizes: Mapping[str, int]) -> np.ndarray:
        """Draw values in the shape that these sizes of the dynamic axes make."""
        shape = tuple(sizes[axis] if isinstance(axis, str) else axis for axis in self.axes)
        return self.draw(rng, shape, sizes)


def normal(*axes: int | str, dtype: str = "float32") -> Input:
    """Numbers from the standard normal distribution."""
    return Input(axes, lambda rng, shape, _: rng.standard_normal(shape).astype(dtype))


def uniform(*axes: int | str) -> Input:
    """FP32 from 0 to 1."""
    return Input(axes, lambda rng, shape, _: rng.random(shape, dtype="float32"))


def integers(low: int, high: int, *axes: int | str, dtype: str = "int64") -> Input:
    """Whole numbers from low to high - 1."""
    return Input(axes, lambda rng, shape, _: rng.integers(low, high, shape).astype(dtype))


def flags(*axes: int | str) -> Input:
    """True or false, evenly."""
    return Input(axes, lambda rng, shape, _: rng.random(shape) < 0.5)


def lengths(label: str, *axes: int | str) -> Input:
    """INT64 from 1 to the size of the axis with this label."""
    return Input(axes, lambda rng, shape, sizes: rng.integers(1, sizes[label] + 1, shape))


def mask(*axes: int | str, dtype: str = "int64", padding: bool = False, behind: bool = True) -> Input:
    """Ones for what counts along the last axis, at least one, and zeros behind it or before it.

    With `padding` it is the padding that has ones.
    """

    def draw(rng: np.random.Generator, shape: tuple[int, ...], _: Mapping[str, int]) -> np.ndarray:
        import numpy as np

        filled = rng.integers(1, shape[-1] + 1, (*shape[:-1], 1))
        inside = np.arange(shape[-1]) < filled
        inside = inside if behind else inside[..., ::-1]
        return (inside != padding).astype(dtype)

    return Input(axes, draw)


def below(label: str, *axes: int | str) -> Input:
    """INT64 from 0 to one less than the size of the axis with this label, such as the numbers of nodes."""
    return Input(axes, lambda rng, shape, sizes: rng.integers(0, sizes[label], shape))
