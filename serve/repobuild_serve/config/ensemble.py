"""Whether the members of an ensemble fit together (Triton contract, ensembles, checks at load).

Nothing here loads a model: the functions take completed ModelConfig messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from repobuild_serve.config.settings import enum_name
from repobuild_serve.errors import LoadError


@dataclass(slots=True, eq=False)
class _Tensor:
    """A tensor of an ensemble, as the model that names it first has it.

    Attributes:
        model: Name of that model.
        type_name: Config name of its element type.
        dims: Dims without the batch dim.
        full_dims: Dims on the wire, with -1 first if the model batches.
        step: Index of the step that writes the tensor; -1 for an input of the ensemble.
        decoupled: Whether a decoupled model writes it.
        stream: Which decoupled step its responses come from; 0 is none.
    """

    model: str
    type_name: str
    dims: tuple[int, ...]
    full_dims: tuple[int, ...]
    step: int = -1
    decoupled: bool = False
    stream: int = 0
    visited: bool = False
    before: list[_Tensor] = field(default_factory=list)
    after: list[_Tensor] = field(default_factory=list)


def check_ensemble(config: Any, members: Mapping[str, Any | None]) -> bool:
    """Check an ensemble against the models it is made of.

    Args:
        config: Validated ModelConfig message of the ensemble.
        members: Completed ModelConfig message by model name; None or absent if there is no such model.

    Returns:
        Whether the ensemble answers decoupled because a member does. The caller writes it to
        ``model_transaction_policy.decoupled``, which Triton sets on every ensemble, and then checks that
        the response cache is off.

    Raises:
        LoadError: The first rule that is broken.
    """
    name = config.name
    for step in config.ensemble_scheduling.step:
        if members.get(step.model_name) is None:
            # Triton names the first one only.
            raise LoadError(
                f"ensemble {name} contains models that are not available or ambiguous: {step.model_name}"
            )
    tensors = {item.name: _of(item, name, config, reshaped=True) for item in config.input}
    for item in config.output:
        tensors.setdefault(item.name, _of(item, name, config, reshaped=True))
    for index, step in enumerate(config.ensemble_scheduling.step):
        member = members[step.model_name]
        assert member is not None
        if 0 < member.max_batch_size < config.max_batch_size:
            raise LoadError(
                f"ensemble {name} allows maximum batch size {config.max_batch_size}, but it contains model "
                f"{step.model_name} which only allows maximum batch size to be {member.max_batch_size}"
            )
        _map_inputs(name, step, member, tensors)
        _map_outputs(name, step, member, tensors, index)
    return _streams(config, tensors) > 0


def check_dependencies(
    config: Any,
    versions: Mapping[str, Sequence[int]],
    problems: Mapping[str, str],
    failures: Mapping[str, str],
) -> None:
    """Check that the members of an ensemble are there and loaded, in the versions it wants.

    Args:
        config: ModelConfig message of the ensemble.
        versions: Loaded versions by model name.
        problems: Why an ensemble among the members is not valid, by name.
        failures: How the last load of a member ended, by name; empty or absent if it went well.

    Raises:
        LoadError: The first member that cannot be used.
    """
    wanted: dict[str, set[int]] = {}
    for step in config.ensemble_scheduling.step:
        wanted.setdefault(step.model_name, set()).add(step.model_version)
    for member, numbers in wanted.items():
        said = f"ensemble '{config.name}' depends on '{member}'"
        if member in problems:
            raise LoadError(
                f"{said} which is not valid. Model '{member}' failed with error: {problems[member]}"
            )
        if not versions.get(member):
            failure = failures.get(member, "")
            more = f" Model '{member}' loading failed with error: {failure}" if failure else ""
            raise LoadError(f"{said} which has no loaded version.{more}")
        for number in sorted(numbers - {-1}):
            if number not in versions[member]:
                raise LoadError(f"{said} whose required version {number} is not loaded.")


def circular_ensembles(configs: Mapping[str, Any]) -> dict[str, str]:
    """The ensembles that depend on themselves, with what is told of each.

    Args:
        configs: ModelConfig message by model name.
    """
    found: dict[str, str] = {}
    for name in sorted(configs):
        if name in found:
            continue
        chain = _cycle(name, configs)
        if chain:
            text = f"circular dependency between ensembles: {name} -> ... -> {chain[-1]} -> {name}"
            found |= dict.fromkeys(chain, text)
    return found


def _cycle(start: str, configs: Mapping[str, Any]) -> list[str]:
    """The models on a way from ``start`` back to it; empty if there is none."""
    chain, seen = [start], {start}
    ways: list[Iterator[str]] = [_members(start, configs)]
    while ways:
        member = next(ways[-1], None)
        if member == start:
            return chain
        if member is None:
            ways.pop()
            chain.pop()
        elif member not in seen:
            seen.add(member)
            chain.append(member)
            ways.append(_members(member, configs))
    return []


def _members(name: str, configs: Mapping[str, Any]) -> Iterator[str]:
    config = configs.get(name)
    if config is not None:
        yield from (step.model_name for step in config.ensemble_scheduling.step)


def _of(item: Any, model: str, config: Any, *, reshaped: bool = False) -> _Tensor:
    dims = tuple(item.reshape.shape if reshaped and item.HasField("reshape") else item.dims)
    full = (-1, *dims) if config.max_batch_size > 0 else dims
    return _Tensor(model, enum_name(item, "data_type"), dims, full)


def _map_inputs(name: str, step: Any, member: Any, tensors: dict[str, _Tensor]) -> None:
    by_name = {item.name: item for item in member.input}
    for input_name, tensor_name in sorted(step.input_map.items()):
        if input_name not in by_name:
            raise LoadError(
                f"in ensemble {name}, ensemble tensor {tensor_name} is mapping to non-existing input "
                f"{input_name} in model {step.model_name}"
            )
    for item in member.input:
        if item.name in step.input_map:
            _join(name, step.input_map[item.name], _of(item, step.model_name, member), tensors)
        elif not item.optional:
            raise LoadError(
                f"in ensemble {name}, input {item.name} in model {step.model_name} is not mapped to any "
                "ensemble tensors"
            )


def _map_outputs(name: str, step: Any, member: Any, tensors: dict[str, _Tensor], index: int) -> None:
    by_name = {item.name: item for item in member.output}
    for output_name, tensor_name in sorted(step.output_map.items()):
        if output_name not in by_name:
            raise LoadError(
                f"in ensemble {name}, ensemble tensor {tensor_name} is mapped from non-existing output "
                f"{output_name} in model {step.model_name}"
            )
    decoupled = member.model_transaction_policy.decoupled
    for output_name, tensor_name in sorted(step.output_map.items()):
        tensor = _join(name, tensor_name, _of(by_name[output_name], step.model_name, member), tensors)
        tensor.step, tensor.decoupled = index, decoupled
        for source_name in sorted(step.input_map.values()):
            source = tensors[source_name]
            tensor.before.append(source)
            source.after.append(tensor)


def _join(name: str, tensor_name: str, own: _Tensor, tensors: dict[str, _Tensor]) -> _Tensor:
    """The ensemble's tensor of a name, which what a model has there must fit."""
    tensor = tensors.setdefault(tensor_name, own)
    where = f"in ensemble {name}, ensemble tensor {tensor_name}: inconsistent"
    if tensor.type_name != own.type_name:
        raise LoadError(
            f"{where} data type: {tensor.type_name} is inferred from model {tensor.model} while "
            f"{own.type_name} is inferred from model {own.model}"
        )
    if not (_fit(tensor.dims, own.dims) or _fit(tensor.full_dims, own.full_dims)):
        raise LoadError(
            f"{where} shape: {_shape(tensor.full_dims)} is inferred from model {tensor.model} while "
            f"{_shape(own.full_dims)} is inferred from model {own.model}"
        )
    return tensor


def _fit(ours: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
    return len(ours) == len(theirs) and all(a == b or -1 in (a, b) for a, b in zip(ours, theirs, strict=True))


def _shape(dims: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, dims))}]"


def _streams(config: Any, tensors: Mapping[str, _Tensor]) -> int:
    """Follow the responses of decoupled members through the ensemble; how many streams there are.

    Raises:
        LoadError: A step gets tensors of different streams, whose responses cannot be paired.
    """
    count = 0
    by_step: dict[int, int] = {}
    waiting = deque(tensors[item.name] for item in config.input)
    for tensor in waiting:
        tensor.visited = True
    # Only what is an output of the whole ensemble; its parts must be of one stream too.
    sink = _Tensor(config.name, "", (), ())
    for item in config.output:
        sink.before.append(tensors[item.name])
        tensors[item.name].after.append(sink)
    while waiting:
        for result in waiting.popleft().after:
            if result.visited or not all(source.visited for source in result.before):
                continue
            stream = result.before[0].stream
            if any(source.stream != stream for source in result.before):
                raise LoadError(
                    f"in ensemble {config.name}, step of model '{result.model}' receives inputs originated "
                    "from different decoupled models"
                )
            if result.step in by_step:
                stream = by_step[result.step]
            elif result.decoupled:
                count += 1
                stream = count
            by_step[result.step] = stream
            result.stream, result.visited = stream, True
            waiting.append(result)
    return count
