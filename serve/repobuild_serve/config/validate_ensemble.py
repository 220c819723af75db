"""The checks of ``ensemble_scheduling`` that need no other model (Triton contract, ensembles)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from repobuild_serve.errors import ConfigError


@dataclass(slots=True, eq=False)
class _Tensor:
    """A tensor of an ensemble, and the ones it is made from and goes into."""

    name: str
    written: bool = False
    ready: bool = False
    before: list[_Tensor] = field(default_factory=list)
    after: list[_Tensor] = field(default_factory=list)


def validate_ensemble(config: Any) -> None:
    """Check the ``ensemble_scheduling`` of a ModelConfig message that has it.

    Raises:
        ConfigError: The first rule that is broken.
    """
    name = config.name
    if config.platform != "ensemble":
        raise ConfigError(
            f"ensemble scheduling cannot be set for model '{name}' whose platform is not ensemble"
        )
    if config.instance_group:
        raise ConfigError(f"instance group should not be specified for ensemble '{name}'")
    if config.HasField("optimization"):
        raise ConfigError(f"optimization should not be specified for ensemble '{name}'")
    if config.model_warmup:
        raise ConfigError(f"model_warmup can not be specified for ensemble '{name}'")
    if not config.ensemble_scheduling.step:
        raise ConfigError(f"must specify 'step' for ensemble '{name}'")
    _check_flow(config, _graph(config))


def _graph(config: Any) -> dict[str, _Tensor]:
    name = config.name
    tensors: dict[str, _Tensor] = {}
    for index, step in enumerate(config.ensemble_scheduling.step):
        for part in ("model_name", "input_map", "output_map"):
            if not getattr(step, part):
                raise ConfigError(f"must specify '{part}' in step {index} of ensemble '{name}'")
        made: list[_Tensor] = []
        for _, tensor_name in sorted(step.output_map.items()):
            tensor = tensors.setdefault(tensor_name, _Tensor(tensor_name))
            if tensor.written:
                raise ConfigError(
                    f"ensemble tensor '{tensor_name}' can appear in an output map only once for ensemble "
                    f"'{name}' step {index}"
                )
            tensor.written = True
            made.append(tensor)
        for _, tensor_name in sorted(step.input_map.items()):
            tensor = tensors.setdefault(tensor_name, _Tensor(tensor_name))
            for result in made:
                result.before.append(tensor)
                tensor.after.append(result)
    return tensors


def _check_flow(config: Any, tensors: Mapping[str, _Tensor]) -> None:
    name = config.name
    waiting: deque[_Tensor] = deque()
    for item in config.input:
        tensor = tensors.get(item.name)
        if tensor is None:
            raise ConfigError(f"ensemble input '{item.name}' for ensemble {name}' is not used")
        tensor.ready = True
        waiting.append(tensor)
    while waiting:
        for result in waiting.popleft().after:
            if not result.ready and all(source.ready for source in result.before):
                result.ready = True
                waiting.append(result)
    outputs: set[str] = set()
    for item in config.output:
        tensor = tensors.get(item.name)
        if tensor is None:
            raise ConfigError(f"ensemble output '{item.name}' for ensemble {name}' is not used")
        if not tensor.ready:
            raise ConfigError(_not_written(name, tensor))
        outputs.add(item.name)
    for tensor_name, tensor in tensors.items():
        if tensor_name not in outputs and not (tensor.ready and tensor.after):
            raise ConfigError(f"ensemble tensor '{tensor_name}' is unused in ensemble '{name}'")


def _not_written(name: str, output: _Tensor) -> str:
    """The text for an output that no step writes, with the farthest tensor that it waits for."""
    text = f"output '{output.name}' for ensemble '{name}' is not written"
    last, seen = output, set[str]()
    while True:
        missing = next((t for t in last.before if not t.ready and t.name not in seen), None)
        if missing is None:
            break
        seen.add(missing.name)
        last = missing
    if last.name != output.name:
        text += f": at least one of its depending tensors, '{last.name}', is not connected"
    return text
