"""The checks of ``sequence_batching`` (Triton contract, sequence batching)."""

from __future__ import annotations

from typing import Any

from repobuild_serve.config.settings import enum_name
from repobuild_serve.errors import ConfigError

_PAIRS = ("int32_false_true", "fp32_false_true", "bool_false_true")
_EITHER = "either 'int32_false_true', 'fp32_false_true' or 'bool_false_true'"
_BOOLEAN = ("CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_END", "CONTROL_SEQUENCE_READY")
_CORRELATION = "CONTROL_SEQUENCE_CORRID"
_ID_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")


def validate_sequence(config: Any) -> None:
    """Check the ``sequence_batching`` of a ModelConfig message that has it.

    Raises:
        ConfigError: The first rule that is broken.
    """
    name, batching = config.name, config.sequence_batching
    if config.response_cache.enable:
        raise ConfigError(
            f"Response Cache does not currently support model {name} with sequence batching scheduler. "
            "Please disable the response cache."
        )
    for kind in _BOOLEAN:
        _find_control(batching, kind, name)
    control = _find_control(batching, _CORRELATION, name)
    if control is not None and enum_name(control, "data_type") not in _ID_TYPES:
        allowed = f"{', '.join(_ID_TYPES[:-1])} and {_ID_TYPES[-1]}"
        raise ConfigError(
            f"unexpected data type for control {_CORRELATION} for {name}. Allowed data types are {allowed}"
        )
    for size in batching.oldest.preferred_batch_size:
        if size <= 0:
            raise ConfigError(f"sequence batching preferred batch size must be positive for {name}")
        if size > config.max_batch_size:
            raise ConfigError(f"sequence batching preferred batch size must be <= max batch size for {name}")
    # Not a number passes Triton's comparisons, and would compare false with every utilization.
    if not 0.0 <= batching.direct.minimum_slot_utilization <= 1.0:
        raise ConfigError(
            f"sequence batching minimum slot utilization must be in range (0.0, 1.0] for {name}"
        )


def _find_control(batching: Any, kind: str, name: str) -> Any:
    """The only control of a kind, checked, or None. Every look for a kind checks the tensor names too."""
    found: Any = None
    seen: set[str] = set()
    for tensor in batching.control_input:
        if not tensor.name:
            raise ConfigError(f"sequence batching control tensor must have a name for {name}")
        if tensor.name in seen:
            raise ConfigError(
                f"sequence batching control tensor '{tensor.name}' is specified for multiple control kinds "
                f"for {name}"
            )
        seen.add(tensor.name)
        for control in tensor.control:
            if enum_name(control, "kind") != kind:
                continue
            if found is not None:
                raise ConfigError(f"sequence batching specifies multiple {kind} tensors for {name}")
            found = control
            _check_pair(control, kind, name)
    return found


def _check_pair(control: Any, kind: str, name: str) -> None:
    given = [pair for pair in _PAIRS if len(getattr(control, pair))]
    if kind == _CORRELATION:
        if given:
            raise ConfigError(f"sequence batching must not specify {_EITHER} for {kind} for {name}")
        return
    if not given:
        raise ConfigError(f"sequence batching must specify {_EITHER} for {kind} for {name}")
    if len(given) > 1:
        raise ConfigError(
            "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
            f"'bool_false_true' for {kind} for {name}"
        )
    if len(getattr(control, given[0])) != 2:
        raise ConfigError(
            f"sequence batching control '{given[0]}' must have exactly 2 entries for {kind} for {name}"
        )
