"""A recipe as the pipeline sees it: plain frozen values, every default filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from repobuild.tensors import DType

if TYPE_CHECKING:
    from repobuild.recipe.ensemble_types import EnsembleRecipe

DEFAULT_ATOL = 1e-5
DEFAULT_RTOL = 1e-4
DEFAULT_MAX_BATCH_SIZE = 32


@dataclass(frozen=True, slots=True)
class SourceRecipe:
    """Where the trained model lies.

    Attributes:
        path: The model file, absolute.
        given: The path as the recipe has it, for reports.
        kind: The source's registered name, ``None`` to find it from the file.
        sha256: Pin that vouches for this very file, lower-case hexadecimal.
        method: Estimator method to answer with, ``None`` for those that its kind of estimator has.
        custom_ops: Importable modules that register converters, or libraries of ONNX operators.
        module: Where a PyTorch module's class comes from, as the recipe has it.
        environment: The environment that the model was made in, as the recipe has it.
    """

    path: Path
    given: str
    kind: str | None = None
    sha256: str | None = None
    method: str | None = None
    custom_ops: tuple[str, ...] = ()
    module: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class InputRecipe:
    """What an input is to be called and to hold.

    Attributes:
        name: Tensor name.
        dtype: Element type on the wire; ``None`` for the default, FP32.
        dims: Shape of one row; ``None`` to take it from the samples.
    """

    name: str
    dtype: DType | None = None
    dims: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class OutputRecipe:
    """What an output is to be called and where it comes from.

    Attributes:
        name: Tensor name.
        take: Selection from one of the model's answers, such as ``probabilities[:, 1:2]``;
            ``None`` when the answer bears the output's own name.
        labels: ``from-classes`` to write the class names into a label file; a label output is then the
            class index.
    """

    name: str
    take: str | None = None
    labels: str | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """An answer passes when ``|got - want| <= atol + rtol * |want|`` for every element.

    Attributes:
        atol: Absolute part.
        rtol: Relative part.
        scaled: Whether ``atol`` is multiplied by the largest ``|want|`` of the answer over ``unit``, where
            that is above 1: sums in another order differ in proportion to their terms, also where the terms
            cancel (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2).
        unit: The size of answers that ``atol`` was meant for, above 0.
    """

    atol: float = DEFAULT_ATOL
    rtol: float = DEFAULT_RTOL
    scaled: bool = False
    unit: float = 1.0

    def in_proportion(self, size: float) -> Bounds:
        """The same up to answers of a size, and in proportion to them for larger ones.

        Bounds that are no smaller than the answers themselves say nothing of a proportion, and stay.
        """
        if self.scaled or not 0 < self.atol < size:
            return self
        return replace(self, scaled=True, unit=size)


EXACT = Bounds(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Bounds for all outputs, and for some outputs by name.

    Attributes:
        default: For outputs that are not named.
        by_output: For those that are.
        stated: Whether the recipe states the default itself.
    """

    default: Bounds = Bounds()
    by_output: Mapping[str, Bounds] = field(default_factory=lambda: MappingProxyType({}))
    stated: bool = False

    def with_exact(self, outputs: Iterable[str]) -> Tolerance:
        """The same, but for some outputs nothing except equality."""
        return replace(self, by_output={**self.by_output, **dict.fromkeys(outputs, EXACT)})

    def or_scaled(self, both: float | None = None) -> Tolerance:
        """What the recipe states, or else bounds in proportion to the size of the answers.

        Args:
            both: ``atol`` and ``rtol`` in place of the defaults.
        """
        if self.stated:
            return self
        bounds = Bounds(scaled=True) if both is None else Bounds(both, both, scaled=True)
        return replace(self, default=bounds)

    def beyond(self, sizes: Mapping[str, float]) -> Tolerance:
        """The tolerance for requests with values beyond the samples.

        Args:
            sizes: The largest magnitude among the answers to the samples, by output.
        """
        return replace(
            self, by_output={**self.by_output, **{n: self.of(n).in_proportion(s) for n, s in sizes.items()}}
        )

    def of(self, output: str) -> Bounds:
        """The bounds that hold for one output."""
        return self.by_output.get(output, self.default)


@dataclass(frozen=True, slots=True)
class Budget:
    """What fails a build when it is exceeded; ``None`` is no limit.

    Attributes:
        accuracy_drop: Accuracy on the labels that conversion may cost, 0 to 1.
        label_flips: Sample rows whose class label may change.
        file_mb: Size of the artifact, in 10^6 bytes.
        p99_ms: 99th percentile of a lone row's latency on the bundled server, in milliseconds.
    """

    accuracy_drop: float | None = None
    label_flips: int | None = None
    file_mb: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True)
class TargetRecipe:
    """What to compile for.

    Attributes:
        kind: Compiler's registered name.
        options: Its options as the recipe has them.
    """

    kind: str
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model to convert.

    Attributes:
        name: Model name in the repository.
        source: The trained model.
        samples: File of real input rows, absolute; checks, warm-up and golden rows come from it. ``None``
            to make rows up.
        samples_given: That path as the recipe has it, empty without one.
        inputs: Names and types of inputs, empty for the defaults.
        outputs: Outputs to emit, empty for all answers of the model.
        tolerance: How far answers may lie apart.
        serving: ModelConfig fields under Triton's own names.
        opset: ONNX opset of the default domain, ``None`` for the project's default.
        labels: File of the samples' true targets, absolute; ``None`` without task metrics.
        labels_given: That path as the recipe has it, empty without one.
        budget: What fails the build when it is exceeded.
        target: Triton release that the model must load on, ``None`` for the newest known.
        targets: What to compile for.
        export: Options of the export section that only some sources know, as the recipe has them.
        folder: Folder that paths of the recipe are relative to, absolute.
        file: The recipe file, ``None`` when made in Python.
        digest: sha256 of the recipe file, empty when made in Python.
        lines: Line of each key path in the recipe file, for errors found later.
        ensemble: The steps of an ensemble, whose ``source`` is the recipe itself; ``None`` for one model.
    """

    name: str
    source: SourceRecipe
    samples: Path | None
    samples_given: str
    inputs: tuple[InputRecipe, ...] = ()
    outputs: tuple[OutputRecipe, ...] = ()
    tolerance: Tolerance = Tolerance()
    serving: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    opset: int | None = None
    labels: Path | None = None
    labels_given: str = ""
    budget: Budget = Budget()
    target: str | None = None
    targets: tuple[TargetRecipe, ...] = (TargetRecipe("onnxruntime"),)
    export: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    folder: Path = Path()
    file: Path | None = None
    digest: str = ""
    lines: Mapping[tuple[str | int, ...], int] = field(default_factory=lambda: MappingProxyType({}))
    ensemble: EnsembleRecipe | None = None

    def files(self) -> tuple[Path, ...]:
        """The files that a build of it reads."""
        named = (self.file, self.source.path, self.samples, self.labels)
        steps = self.ensemble.files() if self.ensemble else ()
        return (*(path for path in named if path is not None), *steps)
