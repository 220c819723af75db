"""What is worked out once per model version, so that a request costs little."""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import prod

from repobuild_serve.config.settings import ModelSettings, TensorConfig
from repobuild_serve.core.execution import fits
from repobuild_serve.core.ticket import NO_CONTEXT, Context, Ticket
from repobuild_serve.errors import RequestError

_REMEMBERED = 1024
_LONGEST_HEADER = 4096
_SPARE_VALUES = 1 << 16
_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "
    "prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims "
    "config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


_MOST = (1 << 63) - 1
_MOST_LISTED = 64


def element_count(name: str, dims: Sequence[int], size: int = 1) -> int:
    """The number of elements of a shape.

    Args:
        name: Input name, for the text.
        dims: The shape as a client states it, non-negative.
        size: Bytes of an element.

    Raises:
        RequestError: They would be more bytes than any memory has. The product is then not worked out, which
            takes long for many large dims.
    """
    if 0 in dims:
        return 0
    count = 1
    for dim in dims:
        count *= dim
        if count * size > _MOST:
            raise RequestError(
                f"invalid shape for input '{name}': shape {listed(dims)} causes total element count to "
                f"exceed maximum size of {_MOST}"
            )
    return count


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape that was found valid for an input.

    Attributes:
        rows: Batch rows; 1 without batching.
        dims: Shape without the batch dim.
        count: Number of elements.
        size: Bytes of the packed tensor; 0 for BYTES, whose elements vary.
        key: Part of the ticket's key: equal for requests that may share a batch.
        pack: From ``count`` numbers to the packed tensor; raises if one is no number of the type, or there
            are more or fewer. Only for types that have a ``code``.
    """

    rows: int
    dims: tuple[int, ...]
    count: int
    size: int
    key: Hashable
    pack: Callable[..., bytes]


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


@dataclass(frozen=True, slots=True)
class Asked:
    """How a client wants its answer.

    Attributes:
        context: What the request says beside its tensors, as its ticket has it.
        wanted: Outputs to send, in model order; None sends all as JSON.
    """

    context: Context = NO_CONTEXT
    wanted: tuple[Wanted, ...] | None = None

    @property
    def request_id(self) -> str:
        """The client's id; empty if none."""
        return self.context.request_id


ALL_AS_JSON = Asked()
Parsed = tuple[Ticket, Asked]
"""A request that passed all checks. The ticket's number is set when it is submitted."""


@dataclass(frozen=True, slots=True)
class BinaryLayout:
    """What a JSON part says whose tensors all follow as blobs; requests that repeat it mean the same.

    Attributes:
        rows: Batch rows.
        shapes: Shape of each input without the batch dim.
        key: The ticket's key.
        timeout_ns: Queue time-out asked for.
        priority: Priority level asked for.
        asked: How the answer is wanted.
        spans: Where each input's blob starts and stops behind the JSON part, in config order.
        tail: Bytes behind the JSON part.
    """

    rows: int
    shapes: Sequence[tuple[int, ...] | None]
    key: Hashable
    timeout_ns: int
    priority: int
    asked: Asked
    spans: Sequence[tuple[int, int]]
    tail: int


@dataclass(slots=True)
class InputPlan:
    """One input: its config and the valid shapes seen so far, by the dims on the wire."""

    config: TensorConfig
    shapes: dict[tuple[int, ...], Shape] = field(default_factory=dict)


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
        self.variable = any(item.variable and not item.ragged for item in settings.inputs)
        self.optional = any(item.optional for item in settings.inputs)
        self.text_only = settings.text_only
        self.layouts: dict[bytes, BinaryLayout] = {}
        self.most_values = _most_values(settings)
        self.all_binary = tuple(Wanted(index, binary=True) for index in range(len(settings.outputs)))

    def remember_layout(self, header: bytes, layout: BinaryLayout) -> None:
        """Keep what a JSON part means; the memory is bounded."""
        if len(header) > _LONGEST_HEADER or layout.asked.request_id:
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
                raise no_batch_dim(config.name, self.name)
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
                f"Expected {listed(expected)}, got {listed(dims)}. {note}",
                tagged=True,
            )
        count = prod(inner)
        if settings.batched and rows == 0:
            raise RequestError(
                f"input byte size mismatch for input '{config.name}' for model '{self.name}'. "
                f"Expected {count * config.datatype.size}, got 0",
                tagged=True,
            )
        element_count(config.name, dims, max(1, config.datatype.size))
        shape = Shape(
            rows=rows,
            dims=inner,
            count=rows * count,
            size=rows * count * config.datatype.size,
            key=inner if config.variable and not config.ragged else None,
            pack=struct.Struct(f"<{rows * count}{config.datatype.code or 's'}").pack,
        )
        if len(plan.shapes) >= _REMEMBERED:
            plan.shapes.clear()
        plan.shapes[tuple(dims)] = shape
        return shape

    def check_values(self, text: bytes) -> None:
        """Refuse a large JSON text by its commas, before it is turned into many times its size in objects.

        Raises:
            RequestError: It has more values than the model takes in its largest batch.
        """
        if self.most_values is not None and text.count(b",") > self.most_values:
            raise RequestError(
                f"the request has more than {self.most_values} values, which no batch of model "
                f"'{self.name}' has"
            )

    def key(self, shapes: Sequence[Shape | None]) -> Hashable:
        """The ticket key of a request with these input shapes; None stands for an input left out."""
        if not (self.variable or self.optional):
            return None
        return tuple((shape.key,) if shape is not None else None for shape in shapes)


def _most_values(settings: ModelSettings) -> int | None:
    """More JSON values than any request for the model needs; None where shapes or texts set no bound."""
    if any(item.variable or not item.datatype.size for item in settings.inputs):
        return None
    rows = max(1, settings.max_batch_size)
    return sum(rows * prod(item.dims) for item in settings.inputs) + _SPARE_VALUES


def listed(dims: Sequence[int]) -> str:
    """A shape as texts show it; of very many dims only the first."""
    shown = ",".join(map(str, dims[:_MOST_LISTED]))
    return f"[{shown}{',...' if len(dims) > _MOST_LISTED else ''}]"


def no_batch_dim(name: str, model: str) -> RequestError:
    """The error for an input without any dim of a model that batches."""
    return RequestError(
        f"input '{name}' has no shape but model requires batch dimension for '{model}'", tagged=True
    )
