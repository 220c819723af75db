"""One architecture of the zoo: where its module is, how it is fed, and what must become of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.zoo.inputs import Input

if TYPE_CHECKING:
    import numpy as np

FOLDER = Path(__file__).parent / "architectures"
SAMPLE_BATCH = 3
BATCHES = (1, 2, 5)


@dataclass(frozen=True)
class Architecture:
    """One row of the catalog.

    Attributes:
        name: Name of the model in the repository.
        file: Python file in `architectures/`, as a user could have written it.
        cls: Class of the module in that file.
        inputs: Arguments of its forward, in order.
        outputs: Names that the outputs must get, in order.
        sizes: Three or more sizes of each dynamic axis but the batch: the first is that of the samples.
        kwargs: Arguments of the class.
        constants: Python arguments of forward.
        batched: Whether the model must get a batch dimension.
        atol: Absolute tolerance, of recipe and of comparison.
        rtol: Relative tolerance.
        weights: Name of the file of weights; its ending tells the format.
        gain: Factor on the drawn weights, for nets whose answers would otherwise not depend on the row.
        refusal: Code of the error with which the build must refuse this model; empty if it must be built.
        notes: What is special about it.
    """

    name: str
    file: str
    cls: str
    inputs: Mapping[str, Input]
    outputs: Sequence[str] = ("output",)
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    batched: bool = True
    atol: float = 1e-5
    rtol: float = 1e-4
    weights: str = "weights.safetensors"
    gain: float = 1.0
    refusal: str = ""
    notes: str = ""

    @property
    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """Axis and label of every dynamic axis, as a recipe gives them."""
        free = {
            name: {axis: label for axis, label in enumerate(item.axes) if isinstance(label, str)}
            for name, item in self.inputs.items()
        }
        return {name: axes for name, axes in free.items() if axes}

    def draw(self, seed: int, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Inputs by argument of forward, for these sizes of all dynamic axes."""
        import numpy as np

        rng = np.random.default_rng(seed)
        return {name: item.values(rng, sizes) for name, item in self.inputs.items()}

    def samples(self, seed: int = 0) -> dict[str, np.ndarray]:
        """The samples that the recipe names."""
        return self.draw(
            seed, {"batch": SAMPLE_BATCH, **{label: sizes[0] for label, sizes in self.sizes.items()}}
        )

    def settings(self) -> list[dict[str, int]]:
        """Sizes of all dynamic axes to compare at: each batch, and each axis at each of its further sizes.

        The axes take all combinations of two sizes that the samples do not have.
        """
        labels = list(self.sizes)
        batches = BATCHES if any("batch" in item.axes for item in self.inputs.values()) else (0,)
        other = [
            dict(zip(labels, sizes, strict=True)) for sizes in product(*(self.sizes[x][1:] for x in labels))
        ]
        return [{"batch": batch, **sizes} for batch in batches for sizes in other]
