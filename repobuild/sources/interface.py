"""What a source of trained models does: one file and one row of ``plugins.SOURCES`` add a framework.

A source is opened on a private copy of the model file. Opening runs no code of the file; that happens in a
child process, once :meth:`Source.vouch` has passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from repobuild.artifact import Library, Tool
from repobuild.feeds import Feed
from repobuild.recipe.types import Recipe
from repobuild.tensors import Batch, DType, TensorSpec


@dataclass(frozen=True, slots=True)
class Trust:
    """What the user vouches for, on the command line.

    Attributes:
        kinds: Kinds of code-carrying files that may be loaded: ``pickle``, ``module``, ``torchscript``.
    """

    kinds: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Description:
    """A loaded model, in words.

    Attributes:
        model: What it is, such as ``sklearn.linear_model.LogisticRegression``.
        facts: JSON-ready facts for the report (classes, features, versions).
        feed: How it is fed, and by that its inputs.
        tools: Versions of the framework and of what exports it.
    """

    model: str
    facts: dict[str, Any]
    feed: Feed
    tools: tuple[Tool, ...]

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Its inputs, axis 0 free, with FP32 where the float type is open."""
        return self.feed.inputs(DType.FP32)


@dataclass(frozen=True, slots=True)
class Exported:
    """A model as ONNX, as the framework's exporter gave it.

    Attributes:
        path: The ONNX file.
        answers: Graph output behind each of the model's answers, in the model's own order:
            ``{"label": "output_label", "probabilities": "output_probability"}``.
    """

    path: Path
    answers: dict[str, str]


class Source(Protocol):
    """A trained model in its own framework.

    Used as a context manager; leaving it ends the child process. What a model takes decides which of the two
    kinds of source it is: :class:`RowsSource` or :class:`TensorSource`.
    """

    @property
    def takes(self) -> Literal["rows", "tensors"]:
        """Rows of a table, or named tensors."""

    @property
    def takes_custom_ops(self) -> Literal["modules", "libraries"] | None:
        """What ``custom_ops`` are to it, ``None`` for nothing."""

    def vouch(self, trust: Trust) -> None:
        """Make sure that loading is allowed, without loading.

        Raises:
            InputInvalid: The file is not such a model.
            SourceUntrusted: Loading would run code that neither a pin nor ``trust`` vouches for.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class RowsSource(Source, Protocol):
    """A model that takes rows of a table, such as an estimator of scikit-learn."""

    def describe(self, recipe: Recipe, layout: dict[str, Any] | None = None) -> Description:
        """Load the model and say what it is.

        Args:
            recipe: The recipe; its inputs name and type the model's.
            layout: The samples' names, types and shapes, as :meth:`repobuild.samples.Table.layout` gives
                them; ``None`` where there are none yet.

        Raises:
            InputInvalid: It is no model, or the recipe asks for what it has not.
            EnvironmentLacking: A package is missing, or loading crashed, hung or ate the memory.
        """

    def export(self, opset: int, to: Path, floats: DType) -> Exported:
        """Write the model as ONNX.

        Args:
            opset: Opset of the default domain.
            to: File to write.
            floats: FP32 or FP64, for the inputs whose type is open.

        Raises:
            ConversionFailed: The framework's exporter has no way; the estimator or operator is named.
        """

    def predict(
        self, batch: Batch, *, one_by_one: bool = False, answers: Sequence[str] | None = None
    ) -> Batch:
        """The model's own answers.

        Args:
            batch: Rows on axis 0, in the samples' own types.
            one_by_one: Ask for each row alone and stack the answers.
            answers: Names of the answers to compute, ``None`` for all.

        Returns:
            Arrays by answer name, rows on axis 0.

        Raises:
            InputInvalid: The model refuses the rows.
        """

    def predict_each(
        self, batch: Batch, answers: Sequence[str] | None = None
    ) -> tuple[Batch, tuple[str | None, ...]]:
        """The model's own answers to rows that it may refuse, each asked alone.

        Args:
            batch: Rows on axis 0, in the samples' own types.
            answers: Names of the answers to compute, ``None`` for all.

        Returns:
            Answers of the rows that it did not refuse, in their order; and for each row why it was refused,
            or ``None``.
        """

    def jumps(self, batch: Batch, single: Sequence[str]) -> Batch:
        """Rows close to where the model's answer jumps, in the form of the samples; empty where it does not.

        The first half lies a hair from jumps, the second as many rows a step, see
        :func:`repobuild.worker.jumps.find_jumps`.

        Args:
            batch: Sample rows.
            single: Names of arrays whose numbers only ever are float32.
        """

    def made_up(self, count: int) -> Batch:
        """Rows in the range of what the model was trained on, for a recipe without samples."""


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """One input of a model that takes named tensors.

    Attributes:
        name: The input's name.
        sample: The sample array that feeds it.
        dtype: Wire type that file or recipe fix, ``None`` for the samples' own.
        shape: A number for a fixed axis, a label for a free one, ``None`` where only trying tells.
        bounds: ``{label: (least, most)}`` of free axes that the file bounds; ``None`` is no bound.
    """

    name: str
    sample: str
    dtype: DType | None
    shape: tuple[int | str | None, ...]
    bounds: Mapping[str, tuple[int, int | None]]


@dataclass(frozen=True, slots=True)
class TensorDescription:
    """A loaded model that takes named tensors, in words.

    Attributes:
        model: What it is.
        facts: JSON-ready facts for the report.
        arguments: Its inputs, in the order of its call.
        tools: Versions of the framework and of what exports it.
    """

    model: str
    facts: dict[str, Any]
    arguments: tuple[TensorArgument, ...]
    tools: tuple[Tool, ...]


@dataclass(frozen=True, slots=True)
class TensorExport:
    """Such a model as ONNX.

    Attributes:
        path: The ONNX file.
        data: Folder of its external data.
        answers: ``{answer: graph output}`` in the model's own order.
        inputs: ``{input: graph input}``.
        notes: What the exporter said.
        tool: What wrote the graph; empty for a file that was one already.
        branches: Where branches and loops were written that the graph has to keep.
        bounds: ``{input: {axis: (least, most)}}`` that the model's code sets; ``None`` is no bound.
    """

    path: Path
    data: Path
    answers: Mapping[str, str]
    inputs: Mapping[str, str]
    notes: tuple[str, ...]
    tool: str
    branches: tuple[str, ...] = ()
    bounds: Mapping[str, Mapping[int, tuple[int, int | None]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScriptExport:
    """Such a model as TorchScript.

    Attributes:
        path: The file.
        arguments: Names of its forward's arguments, in the order of the inputs.
        shapes: Shape of each output as PyTorch derives it, ``None`` for a free axis; ``None`` in place of all
            where nothing declares them.
        devices: Devices that its code names.
    """

    path: Path
    arguments: tuple[str, ...]
    shapes: tuple[tuple[int | None, ...], ...] | None
    devices: tuple[str, ...]


class TensorSource(Source, Protocol):
    """A model that takes named tensors: PyTorch, ONNX."""

    libraries: tuple[Library, ...]
    """What its graph takes custom operators from, beside ONNX Runtime's own."""

    def describe_tensors(self, recipe: Recipe, layout: dict[str, Any] | None) -> TensorDescription:
        """Load the model and say what it takes.

        Args:
            recipe: The recipe.
            layout: The samples' names, types and shapes; ``None`` where there are none.

        Raises:
            InputInvalid: It is no model, or recipe and samples do not fit it.
            EnvironmentLacking: A package is missing, or loading crashed, hung or ate the memory.
        """

    def ask(self, requests: Sequence[Batch]) -> list[Batch | str]:
        """The model's own answers to each request, or why it refuses it.

        Args:
            requests: One array an input, in the shapes that the model takes.
        """

    def observed(self) -> tuple[str, ...]:
        """Notes on what the calls so far showed, beside the answers."""

    def try_graph(self, graph: Path) -> None:
        """Load a graph in ONNX Runtime as a server does, where nothing but that load may crash.

        The model gives back its memory for it; asking anything more loads it again.

        Args:
            graph: ONNX file; external data lies beside it.

        Raises:
            ConversionFailed: ONNX Runtime refuses the graph, or crashes on it.
        """

    def export_tensors(
        self, opset: int | None, to: Path, example: Batch, free: Mapping[str, Mapping[int, str]]
    ) -> TensorExport:
        """Write the model as ONNX.

        Args:
            opset: Opset of the default domain, ``None`` for the exporter's or the file's own.
            to: File to write.
            example: A request that the model answers.
            free: Labels of the free axes by input.

        Raises:
            ConversionFailed: There is no way; the operator and the line of the user's code are named.
        """

    def script_ways(self) -> tuple[str, ...]:
        """Ways in which the model can be made TorchScript, the more faithful first; none where it cannot."""

    def make_script(
        self, way: str, to: Path, example: Batch, wiring: Mapping[str, Any], *, freeze: bool
    ) -> ScriptExport:
        """Write the model as TorchScript that takes and gives tensors as they are on the wire.

        Args:
            way: One of :meth:`script_ways`.
            to: File to write.
            example: A request as it comes over the wire, that the model answers.
            wiring: ``ranks`` (axes that the model wants, by input), ``outputs`` (``answer`` and ``index`` of
                each) and ``lowest`` (axes that an output has at least).
            freeze: Fold weights into the code.

        Raises:
            ConversionFailed: ``script-failed``: PyTorch makes none in this way.
        """

    def ask_script(self, script: ScriptExport, names: Sequence[str], request: Batch) -> Batch | str:
        """The answers of the script that was made last, in the model's own process, or why it refuses.

        Args:
            script: The script.
            names: Names of its outputs.
            request: One array an input, as it comes over the wire.
        """
