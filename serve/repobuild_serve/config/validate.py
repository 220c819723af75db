"""The checks of a whole model configuration, with Triton's texts (Triton contract, validation rules).

The order is Triton's, so that of several broken rules the same one is told. Inputs and outputs are checked
by ``validate_io``: Triton does so while it reads the folder if nothing is completed from the model, and
else once the backend has completed the config.
"""

from __future__ import annotations

import re
from typing import Any

from repobuild_serve.config.settings import enum_name
from repobuild_serve.config.validate_ensemble import validate_ensemble
from repobuild_serve.config.validate_io import validate_io
from repobuild_serve.config.validate_sequence import validate_sequence
from repobuild_serve.errors import ConfigError

PLATFORMS = {
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "libtorch": "pytorch",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "torch_aoti": "pytorch",
    "ensemble": "",
}
"""Backend by platform."""

_PAIRS = {
    "tensorrt": {"tensorrt_plan"},
    "onnxruntime": {"onnxruntime_onnx"},
    "pytorch": {"pytorch_libtorch", "torch_aoti"},
    "tensorflow": {"tensorflow_graphdef", "tensorflow_savedmodel"},
}
_MOST_LEVELS = 1 << 16
_LABEL = re.compile(r"(?!_)[a-zA-Z0-9_]*", re.ASCII)
"""Keys that are label names once an underscore stands before them; two underscores are Prometheus' own."""


def validate_config(config: Any) -> None:
    """Check a ModelConfig message whose name, backend, inputs and outputs have been filled in.

    Raises:
        ConfigError: The first rule that is broken.
    """
    validate_model(config)
    validate_io(config)


def validate_model(config: Any) -> None:
    """Check all of a ModelConfig message but its inputs and outputs, which may still be incomplete.

    Args:
        config: The message; its name and backend are filled in.

    Raises:
        ConfigError: The first rule that is broken.
    """
    name = config.name
    _check_backend(config)
    if config.max_batch_size < 0:
        raise ConfigError(f"'max_batch_size' must be non-negative value for {name}")
    if config.HasField("dynamic_batching"):
        _check_batching(config)
    if config.HasField("sequence_batching"):
        validate_sequence(config)
    if config.HasField("ensemble_scheduling"):
        validate_ensemble(config)
    elif config.platform == "ensemble":
        raise ConfigError(f"ensemble scheduling must be set for ensemble {name} whose platform is ensemble")
    if config.model_transaction_policy.decoupled and config.response_cache.enable:
        raise ConfigError(
            f"Response Cache does not currently support model {name} with 'decoupled' transaction policy. "
            "Please disable the response cache."
        )
    _check_metrics(config)
    _check_agents(config)


def validate_identity(config: Any, folder_name: str) -> None:
    """Check the model's name against its folder, and that its platform is known.

    Raises:
        ConfigError: The name differs or the platform is unknown.
    """
    if config.name and config.name != folder_name:
        raise ConfigError(
            f"unexpected directory name '{folder_name}' for model '{config.name}', "
            "directory name must equal model name"
        )
    if config.platform and config.platform not in PLATFORMS and not config.backend:
        raise ConfigError(f"unexpected platform type '{config.platform}' for {folder_name}")


def _check_backend(config: Any) -> None:
    name, platform, backend = config.name, config.platform, config.backend
    if not backend:
        if platform != "ensemble":
            raise ConfigError(f"unexpected platform type '{platform}' for {name}")
    elif platform == "ensemble":
        raise ConfigError(
            f"Ensemble model '{name}' must have platform type 'ensemble' and empty backend type"
        )
    if backend in _PAIRS and platform not in _PAIRS[backend]:
        raise ConfigError(f"unexpected 'platform' and 'backend' pair, got:{platform}, {backend}")


def _check_batching(config: Any) -> None:
    name, batching = config.name, config.dynamic_batching
    for size in batching.preferred_batch_size:
        if size <= 0:
            raise ConfigError(f"dynamic batching preferred size must be positive for {name}")
        if size > config.max_batch_size:
            raise ConfigError(f"dynamic batching preferred size must be <= max batch size for {name}")
    levels = batching.priority_levels
    if levels > _MOST_LEVELS:
        # Each has a queue of its own; Triton makes them until memory ends.
        raise ConfigError(f"there can be {_MOST_LEVELS} priority levels at most, got {levels}, for {name}")
    if levels:
        if not 1 <= batching.default_priority_level <= levels:
            raise ConfigError(f"default priority level must be in range [1, {levels}] for {name}")
        if any(not 1 <= level <= levels for level in batching.priority_queue_policy):
            raise ConfigError(
                f"priority queue policy must have priority level in range [1, {levels}] for {name}"
            )
    if batching.preserve_ordering:
        if levels > 1:
            raise ConfigError(
                f"Only one priority level is allowed when 'preserve_ordering' is true for {name}"
            )
        policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
        if any(
            policy.default_timeout_microseconds and enum_name(policy, "timeout_action") == "DELAY"
            for policy in policies
        ):
            raise ConfigError(
                "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for "
                f"{name}"
            )


def _check_metrics(config: Any) -> None:
    for control in config.model_metrics.metric_control:
        if not control.HasField("metric_identifier"):
            raise ConfigError("metric control must specify 'metric_identifier'")
        if not control.metric_identifier.family:
            raise ConfigError("metric identifier must specify non-empty 'family'")
        if not control.HasField("histogram_options"):
            raise ConfigError("metric control must specify 'histogram_options'")
        if not control.histogram_options.buckets:
            raise ConfigError("histogram options must specify non-empty 'buckets'")
    for key in sorted(config.metric_tags):
        # Triton ends here with an exception of its metrics library.
        if not _LABEL.fullmatch(key):
            raise ConfigError(f"metric tag '{key}' makes no valid label name '_{key}' for {config.name}")


def _check_agents(config: Any) -> None:
    # Triton ends here with a segmentation fault.
    if config.HasField("model_repository_agents") and not config.model_repository_agents.agents:
        raise ConfigError(f"'model_repository_agents' must specify 'agents' for {config.name}")
