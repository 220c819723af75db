"""What the rest of the server knows about a model: plain values read from its completed config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repobuild_serve.datatypes import BY_CONFIG_NAME, DataType

MICROSECOND = 1_000


@dataclass(frozen=True, slots=True)
class TensorConfig:
    """One input or output of a model.

    Attributes:
        name: Tensor name.
        datatype: Element type.
        dims: Dims on the wire, without the batch dim; -1 is variable.
        model_dims: Dims that the model itself has: ``reshape`` if given, else ``dims``.
        label_filename: Path of the class labels, relative to the model folder; outputs only.
        optional: Whether a request may leave the input out.
        ragged: Whether requests whose shapes differ in this input may share a batch.
    """

    name: str
    datatype: DataType
    dims: tuple[int, ...]
    model_dims: tuple[int, ...]
    label_filename: str = ""
    optional: bool = False
    ragged: bool = False

    @property
    def variable(self) -> bool:
        """Whether requests of different shapes exist for this tensor."""
        return -1 in self.dims


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How long requests may wait, and how many (Triton contract, queue policy).

    Attributes:
        timeout_ns: Default time-out, counted from enqueue; 0 is none.
        allow_override: Whether a request's shorter ``timeout`` replaces the default.
        delay_expired: DELAY: expired requests run after the fresh ones; otherwise they are rejected.
        max_size: Largest number of waiting requests; 0 is no limit.
    """

    timeout_ns: int = 0
    allow_override: bool = False
    delay_expired: bool = False
    max_size: int = 0


@dataclass(frozen=True, slots=True)
class BatchingPolicy:
    """The ``dynamic_batching`` settings.

    Attributes:
        preferred: Preferred batch sizes, ascending; never empty.
        max_batch_size: Largest batch.
        delay_ns: How long the oldest request may wait for a preferred size; 0 never waits.
        preserve_ordering: Whether answers leave in the order of arrival.
        queue: Queue policy of the levels that have none of their own.
        levels: Number of priority levels, the first being the highest; 0 for no priorities.
        default_level: Level of requests that ask for none, or for one that does not exist.
        level_queues: Queue policies of single levels.
    """

    preferred: tuple[int, ...]
    max_batch_size: int
    delay_ns: int = 0
    preserve_ordering: bool = False
    queue: QueuePolicy = field(default_factory=QueuePolicy)
    levels: int = 0
    default_level: int = 0
    level_queues: Mapping[int, QueuePolicy] = field(default_factory=dict)

    def queues(self) -> tuple[QueuePolicy, ...]:
        """The queue policy of each level, the highest first; of the only one if there are no priorities."""
        return tuple(self.level_queues.get(level, self.queue) for level in range(1, max(1, self.levels) + 1))


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One step of an ensemble.

    Attributes:
        model: Name of the member.
        version: Its version; -1 for the highest one.
        inputs: Ensemble tensor by input name of the member.
        outputs: Ensemble tensor by output name of the member.
    """

    model: str
    version: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WarmupInput:
    """Data of one tensor of a warm-up sample: exactly one of the three sources is set."""

    name: str
    datatype: DataType
    dims: tuple[int, ...]
    source: str
    data_file: str = ""


@dataclass(frozen=True, slots=True)
class WarmupSample:
    """One ``model_warmup`` entry: ``batch_size`` requests of one row, ``count`` times."""

    name: str
    batch_size: int
    count: int
    inputs: tuple[WarmupInput, ...]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """A completed model configuration.

    Attributes:
        name: Model name.
        folder: The model's folder in the repository.
        platform: What metadata reports: ``platform``, or the backend's name where that is empty.
        backend: Backend name, e.g. ``"onnxruntime"``.
        max_batch_size: 0 when requests carry full shapes.
        inputs: Inputs in config order.
        outputs: Outputs in config order; answers keep this order.
        batching: Settings of the dynamic batcher, or None when every request runs alone.
        instance_names: One name per instance.
        parameters: Backend parameters.
        graph_level: ``optimization.graph.level``; 0 when absent.
        default_filename: ``default_model_filename``; empty for the backend's own default.
        metric_tags: Extra metric labels, without the leading underscore.
        warmup: Warm-up samples.
        decoupled: Whether a request may get any number of responses.
        steps: Steps of an ensemble; empty for any other model.
        message: The completed ModelConfig message, for printing.
        text_only: Whether its backend takes strings as text only, not as any bytes.
    """

    name: str
    folder: Path
    platform: str
    backend: str
    max_batch_size: int
    inputs: tuple[TensorConfig, ...]
    outputs: tuple[TensorConfig, ...]
    batching: BatchingPolicy | None
    instance_names: tuple[str, ...]
    parameters: Mapping[str, str]
    graph_level: int
    default_filename: str
    metric_tags: Mapping[str, str]
    warmup: tuple[WarmupSample, ...]
    decoupled: bool
    steps: tuple[EnsembleStep, ...]
    message: Any
    text_only: bool = False

    @property
    def batched(self) -> bool:
        """Whether shapes on the wire start with a batch dim."""
        return self.max_batch_size > 0


def settings_from(config: Any, folder: Path, *, text_only: bool = False) -> ModelSettings:
    """Read the settings out of a validated and completed ModelConfig message.

    Args:
        config: The message.
        folder: The model's folder.
        text_only: Whether the model's backend takes strings as text only.
    """
    return ModelSettings(
        name=config.name,
        folder=folder,
        platform=config.platform or config.backend,
        backend=config.backend,
        max_batch_size=config.max_batch_size,
        inputs=tuple(_tensor(item) for item in config.input),
        outputs=tuple(_tensor(item) for item in config.output),
        batching=_batching(config),
        instance_names=tuple(
            f"{group.name}_{number}"
            for group in config.instance_group
            # A group has its count on each of its GPUs.
            for number in range(group.count * max(1, len(group.gpus)))
        ),
        parameters={key: value.string_value for key, value in sorted(config.parameters.items())},
        graph_level=config.optimization.graph.level,
        default_filename=config.default_model_filename,
        metric_tags=dict(sorted(config.metric_tags.items())),
        warmup=tuple(_warmup(sample) for sample in config.model_warmup),
        decoupled=config.model_transaction_policy.decoupled,
        steps=tuple(
            EnsembleStep(step.model_name, step.model_version, dict(step.input_map), dict(step.output_map))
            for step in config.ensemble_scheduling.step
        ),
        message=config,
        text_only=text_only,
    )


def enum_name(message: Any, field_name: str) -> str:
    """The name of the enum value that ``message.field_name`` holds."""
    descriptor = message.DESCRIPTOR.fields_by_name[field_name].enum_type
    value = descriptor.values_by_number.get(getattr(message, field_name))
    return str(value.name) if value is not None else str(getattr(message, field_name))


def _tensor(item: Any) -> TensorConfig:
    dims = tuple(item.dims)
    return TensorConfig(
        name=item.name,
        datatype=BY_CONFIG_NAME[enum_name(item, "data_type")],
        dims=dims,
        model_dims=tuple(item.reshape.shape) if item.HasField("reshape") else dims,
        # An input has no labels, an output is neither optional nor ragged.
        label_filename=getattr(item, "label_filename", ""),
        optional=getattr(item, "optional", False),
        ragged=getattr(item, "allow_ragged_batch", False),
    )


def _batching(config: Any) -> BatchingPolicy | None:
    if not config.HasField("dynamic_batching"):
        return None
    batching = config.dynamic_batching
    largest = max(1, config.max_batch_size)
    return BatchingPolicy(
        preferred=tuple(sorted({*batching.preferred_batch_size})) or (largest,),
        max_batch_size=largest,
        delay_ns=batching.max_queue_delay_microseconds * MICROSECOND,
        preserve_ordering=batching.preserve_ordering,
        queue=_queue(batching.default_queue_policy),
        levels=batching.priority_levels,
        default_level=batching.default_priority_level,
        level_queues={level: _queue(policy) for level, policy in batching.priority_queue_policy.items()},
    )


def _queue(policy: Any) -> QueuePolicy:
    return QueuePolicy(
        timeout_ns=policy.default_timeout_microseconds * MICROSECOND,
        allow_override=policy.allow_timeout_override,
        delay_expired=enum_name(policy, "timeout_action") == "DELAY",
        max_size=policy.max_queue_size,
    )


def _warmup(sample: Any) -> WarmupSample:
    return WarmupSample(
        name=sample.name,
        batch_size=sample.batch_size,
        count=max(1, sample.count),
        inputs=tuple(
            WarmupInput(
                name=name,
                datatype=BY_CONFIG_NAME[enum_name(item, "data_type")],
                dims=tuple(item.dims),
                source=item.WhichOneof("input_data_type") or "",
                data_file=item.input_data_file,
            )
            for name, item in sorted(sample.inputs.items())
        ),
    )
