"""The config fields this release serves, so that none is ignored in silence.

A table lists what is honoured or may be accepted without effect (duty R of the Triton contract, field
inventory). A field that is set and is not in the table makes the load fail; one that is accepted without
effect is warned of.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from repobuild_serve.errors import ConfigError

_LOG = logging.getLogger(__name__)
_ANY: dict[str, Any] = {"*": None}
_TENSOR: dict[str, Any] = {"name": None, "data_type": None, "dims": None, "reshape": _ANY}
_QUEUE: dict[str, Any] = {
    "timeout_action": None,
    "default_timeout_microseconds": None,
    "allow_timeout_override": None,
    "max_queue_size": None,
}
_SERVED: dict[str, Any] = {
    "name": None,
    "platform": None,
    "backend": None,
    "runtime": None,
    "version_policy": _ANY,
    "max_batch_size": None,
    "input": {**_TENSOR, "format": None, "optional": None},
    "output": {**_TENSOR, "label_filename": None},
    "optimization": {
        "graph": _ANY,
        "execution_accelerators": _ANY,
        "priority": None,
        "cuda": _ANY,
        "input_pinned_memory": _ANY,
        "output_pinned_memory": _ANY,
        "gather_kernel_buffer_threshold": None,
        "eager_batching": None,
    },
    "dynamic_batching": {
        "preferred_batch_size": None,
        "max_queue_delay_microseconds": None,
        "preserve_ordering": None,
        "default_queue_policy": _QUEUE,
        "priority_levels": None,
        "default_priority_level": None,
        "priority_queue_policy": _ANY,
    },
    "instance_group": {
        "name": None,
        "kind": None,
        "count": None,
        "gpus": None,
        "profile": None,
        "rate_limiter": _ANY,
        "host_policy": None,
    },
    "default_model_filename": None,
    "cc_model_filenames": _ANY,
    "metric_tags": _ANY,
    "parameters": _ANY,
    "model_warmup": _ANY,
    "model_metrics": _ANY,
    "model_transaction_policy": _ANY,
    "ensemble_scheduling": {
        "step": {"model_name": None, "model_version": None, "input_map": _ANY, "output_map": _ANY}
    },
}
# Messages that say nothing as long as their switch is off.
_SWITCHES = {"response_cache": "enable"}


# What nothing here looks at, and what no ensemble has a use for.
_WITHOUT_EFFECT = (
    "runtime",
    "optimization.priority",
    "optimization.cuda",
    "optimization.gather_kernel_buffer_threshold",
    "optimization.eager_batching",
    "instance_group.rate_limiter",
    "instance_group.host_policy",
    "model_metrics",
)
_NOT_FOR_ENSEMBLES = ("default_model_filename", "cc_model_filenames")
# What a backend serves beyond the table.
_BACKENDS: dict[str, dict[str, Any]] = {
    "onnxruntime": {"model_operations": {"op_library_filename": None}},
    "python": {"input": {**_SERVED["input"], "allow_ragged_batch": None}},
}


def refuse_unserved(config: Any) -> None:
    """Check that nothing is asked for that this release does not do.

    Raises:
        ConfigError: Names every such field of the model at once.
    """
    found = sorted(set(_unserved(config, _SERVED | _BACKENDS.get(config.backend, {}), "")))
    if found:
        listed = ", ".join(f"'{path}'" for path in found)
        raise ConfigError(
            f"model configuration field {listed} is not supported by this server yet for {config.name}"
        )


def warn_of_no_effect(config: Any, own: Iterable[str]) -> None:
    """Say which fields are set and change nothing, as they do with Triton, which does not say so.

    Args:
        config: The completed ModelConfig message.
        own: Fields that the backend of the model has no use for, as paths: ``optimization.graph.level``.
    """
    ensemble = config.HasField("ensemble_scheduling")
    for path in (*_WITHOUT_EFFECT, *(_NOT_FOR_ENSEMBLES if ensemble else ())):
        if any(_set_values(config, path.split("."))):
            _LOG.warning("model %s: the field '%s' of its configuration has no effect", config.name, path)
    for path in own:
        if any(_set_values(config, path.split("."))):
            _LOG.warning(
                "model %s: the field '%s' of its configuration has no effect on models of backend '%s'",
                config.name,
                path,
                config.backend,
            )


def _set_values(message: Any, path: list[str]) -> Iterator[bool]:
    """Something true for each place at which the field at the end of a path is set."""
    first, *rest = path
    for field, value in message.ListFields():
        if field.name != first:
            continue
        if not rest:
            yield True
            continue
        for item in value if field.is_repeated else (value,):
            yield from _set_values(item, rest)


def _unserved(message: Any, served: dict[str, Any], path: str) -> list[str]:
    found: list[str] = []
    for field, value in message.ListFields():
        here = f"{path}{field.name}"
        if field.name in _SWITCHES and not getattr(value, _SWITCHES[field.name]):
            continue
        if field.name not in served:
            found.append(here)
            continue
        inner = served[field.name]
        if inner is None or "*" in inner:
            continue
        for item in value if field.is_repeated else (value,):
            found += _unserved(item, inner, f"{here}.")
    return found
