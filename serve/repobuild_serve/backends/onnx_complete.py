"""Filling a config from an ONNX model (Triton contract, auto-complete)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from repobuild_serve.backends.onnx_check import TensorInfo, tensor_infos
from repobuild_serve.config.settings import enum_name
from repobuild_serve.errors import LoadError

_LOG = logging.getLogger(__name__)


def is_complete(config: Any) -> bool:
    """Whether a ModelConfig message names inputs and outputs, so that nothing is taken from the model."""
    return bool((config.input or config.batch_input) and config.output)


def complete(config: Any, session: Any, default_max_batch_size: int) -> None:
    """Fill inputs, outputs, max_batch_size and dynamic batching that the config leaves out.

    Batching is assumed if and only if dim 0 of every input and output is variable.

    Args:
        config: ModelConfig message, changed in place.
        session: The model's session.
        default_max_batch_size: What a model that can batch gets if the config says nothing, or 0.

    Raises:
        LoadError: The config asks for batching and the model does not allow it, or a tensor has a type that
            config.pbtxt has no name for.
    """
    inputs = tensor_infos(session.get_inputs())
    outputs = tensor_infos(session.get_outputs())
    _complete_batching(config, [*inputs.values(), *outputs.values()], default_max_batch_size)
    if not (config.input or config.batch_input):
        _add_tensors(config, config.input, inputs.values())
    if not config.output:
        _add_tensors(config, config.output, outputs.values())


def _complete_batching(config: Any, tensors: list[TensorInfo], default: int) -> None:
    can_batch = all(info.dims and info.dims[0] == -1 for info in tensors)
    if not can_batch:
        if config.max_batch_size > 0:
            raise LoadError(
                f"autofill failed for model '{config.name}': model does not support batching while non-zero "
                "max_batch_size is specified"
            )
        return
    if config.max_batch_size == 0:
        config.max_batch_size = default
        _LOG.warning(
            "autofilled max_batch_size to %d for model '%s' since batching is supported but no "
            "max_batch_size is specified in model configuration",
            default,
            config.name,
        )
    if config.max_batch_size > 1 and not config.WhichOneof("scheduling_choice"):
        config.dynamic_batching.SetInParent()


def _add_tensors(config: Any, section: Any, infos: Iterable[TensorInfo]) -> None:
    for info in infos:
        if not info.config_type:
            raise LoadError(
                f"autofill failed for model '{config.name}': tensor '{info.name}' has type {info.type}, "
                "which "
                "is no tensor of a known element type"
            )
        entry = section.add()
        entry.name = info.name
        numbers = entry.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name
        entry.data_type = numbers[info.config_type].number
        dims = info.dims[1:] if config.max_batch_size > 0 else info.dims
        entry.dims.extend(dims or (1,))
        if not dims and config.max_batch_size > 0:
            entry.reshape.SetInParent()
        _LOG.debug("autofilled %s: %s %s", info.name, enum_name(entry, "data_type"), list(entry.dims))
