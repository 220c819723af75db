"""What is worked out once per model version, so that a request costs little: names, shapes, response pieces."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import prod

from repobuild_serve.config.settings import ModelSettings, TensorConfig
from repobuild_serve.core.execution import fits
from repobuild_serve.core.ticket import Buffer
from repobuild_serve.errors import RequestError

_REMEMBERED = 1024
_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape that was found valid for an input.

    Attributes:
        rows: Batch rows; 1 without batching.
        dims: Shape without the batch dim.
        count: Number of elements.
        size: Bytes of the packed tensor; 0 for BYTES, whose elements vary.
        key: Part of the ticket's key: equal for requests that may share a batch.
    """

    rows: int
    dims: tuple[int, ...]
    count: int
    size: int
    key: Hashable


@dataclass(frozen=True, slots=True)
class Wanted:
    """How one output is to be sent.

    Attributes:
        index: Position in the model's outputs.
        binary: Whether its data follows the JSON part.
        classes: Number of classes to send in place of the values; 0 sends the values.
    """

    index: int
    binary: bool = False
    classes: int = 0


@dataclass(slots=True, eq=False)
class InferRequest:
    """A request that passed all checks. Not frozen only because frozen ones take three times as long to make.

    Attributes:
        rows: Batch rows.
        inputs: Packed tensors in config order.
        shapes: Their shapes without the batch dim.
        key: What requests of one batch have in common; None where all shapes are fixed.
        request_id: The client's id; empty if none.
        wanted: Outputs to send, in model order; None sends all as JSON.
        timeout_ns: Queue time-out asked for; 0 is none.
    """

    rows: int
    inputs: Sequence[Buffer]
    shapes: Sequence[tuple[int, ...]]
    key: Hashable = None
    request_id: str = ""
    wanted: tuple[Wanted, ...] | None = None
    timeout_ns: int = 0


@dataclass(frozen=True, slots=True)
class BinaryLayout:
    """What a JSON part whose tensors all follow as blobs says; it is the same for every request that repeats it."""

    request: InferRequest
    spans: Sequence[tuple[int, int]]
    tail: int


@dataclass(slots=True)
class InputPlan:
    """One input: its config and the shapes seen so far, by their packed 64-bit dims."""

    config: TensorConfig
    shapes: dict[bytes, Shape] = field(default_factory=dict)


class InferPlan:
    """Everything about a model version that reading requests and writing responses needs."""

    def __init__(self, settings: ModelSettings, version: int, labels: Sequence[Sequence[str]]) -> None:
        self.settings = settings
        self.name = settings.name
        self.version = version
        self.labels = labels
        self.inputs = tuple(InputPlan(item) for item in settings.inputs)
        self.inputs_by_name = {plan.config.name: index for index, plan in enumerate(self.inputs)}
        self.outputs_by_name = {item.name: index for index, item in enumerate(settings.outputs)}
        self.variable = any(item.variable for item in settings.inputs)
        self.layouts: dict[bytes, BinaryLayout] = {}
        self.all_binary = tuple(Wanted(index, binary=True) for index in range(len(settings.outputs)))

    def remember_layout(self, header: bytes, layout: BinaryLayout) -> None:
        """Keep what a JSON part means; the memory is bounded."""
        if len(header) > 4096 or layout.request.request_id:
            return
        if len(self.layouts) >= _REMEMBERED:
            self.layouts.clear()
        self.layouts[header] = layout

    def shape(self, index: int, dims: Sequence[int]) -> Shape:
        """Check the shape of input ``index`` and remember it.

        Args:
            index: Position of the input in the config.
            dims: Shape on the wire, non-negative.

        Raises:
            RequestError: The shape does not fit the config (E16, E17 of the Triton contract).
        """
        plan = self.inputs[index]
        config, settings = plan.config, self.settings
        expected = (-1, *config.dims) if settings.batched else config.dims
        rows, inner = 1, tuple(dims)
        if settings.batched:
            if not dims:
                raise RequestError(
                    f"input '{config.name}' has no shape but model requires batch dimension for '{self.name}'",
                    tagged=True,
                )
            rows, inner = dims[0], tuple(dims[1:])
            if rows > settings.max_batch_size:
                raise RequestError(
                    f"inference request batch-size must be <= {settings.max_batch_size} for '{self.name}'",
                    tagged=True,
                )
        if not fits(inner, config.dims):
            note = _BATCH_NOTE if settings.batched else ""
            raise RequestError(
                f"unexpected shape for input '{config.name}' for model '{self.name}'. "
                f"Expected {_listed(expected)}, got {_listed(dims)}. {note}",
                tagged=True,
            )
        count = prod(inner)
        if settings.batched and rows == 0:
            raise RequestError(
                f"input byte size mismatch for input '{config.name}' for model '{self.name}'. "
                f"Expected {count * config.datatype.size}, got 0",
                tagged=True,
            )
        shape = Shape(
            rows, inner, rows * count, rows * count * config.datatype.size, inner if config.variable else None
        )
        if len(plan.shapes) >= _REMEMBERED:
            plan.shapes.clear()
        plan.shapes[array("q", dims).tobytes()] = shape
        return shape

    def key(self, shapes: Sequence[Shape]) -> Hashable:
        """The ticket key of a request with these input shapes."""
        return tuple(shape.key for shape in shapes) if self.variable else None


def _listed(dims: Sequence[int]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"
