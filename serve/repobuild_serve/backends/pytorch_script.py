"""TorchScript models: their inputs, their outputs and a run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repobuild_serve.backends.pytorch_names import script_positions
from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.errors import Code, LoadError, RequestError

_LOG = logging.getLogger(__name__)
_TENSOR_KINDS = ("TensorType", "ListType")


def load_script(torch: Any, name: str, path: Path, device: Any) -> Any:
    """The module in a TorchScript file, in the mode in which it was saved, as with Triton.

    Raises:
        LoadError: PyTorch cannot read it.
    """
    try:
        module = torch.jit.load(str(path), map_location=device)
    except Exception as exc:
        raise LoadError(f"failed to load model '{name}': {exc}", Code.INTERNAL) from exc
    if getattr(module, "training", False):
        _LOG.warning(
            "model %s was saved in training mode and runs in it, as with Triton: dropout drops, and batch "
            "statistics replace the learnt ones; call eval() before saving",
            name,
        )
    return module


def script_call(torch: Any, settings: ModelSettings, module: Any) -> Callable[[list[Any]], list[Any]]:
    """What runs the module: inputs in config order to outputs in config order.

    Raises:
        LoadError: The inputs of ``forward`` do not fit the config.
    """
    name, names = settings.name, [item.name for item in settings.inputs]
    arguments, takes_dict = _arguments(settings, module)
    places = [] if takes_dict else script_positions(name, "input", names, arguments)
    wanted = script_positions(name, "output", [item.name for item in settings.outputs], ())

    def call(values: list[Any]) -> list[Any]:
        if takes_dict:
            found = module(dict(zip(names, values, strict=True)))
        else:
            ordered: list[Any] = [None] * len(values)
            for place, value in zip(places, values, strict=True):
                ordered[place] = value
            found = module(*ordered)
        outputs = list(found) if isinstance(found, tuple) else [found]
        _check_kinds(torch, outputs, several=isinstance(found, tuple))
        for item, place in zip(settings.outputs, wanted, strict=True):
            if place >= len(outputs):
                raise RequestError(
                    f"The output {item.name} in the model configuration refers to an output index which "
                    f"doesn't exist. This model has {len(outputs)} outputs",
                    plain=True,
                )
        return [outputs[place] for place in wanted]

    return call


def _arguments(settings: ModelSettings, module: Any) -> tuple[list[str], bool]:
    """Argument names of ``forward`` without self, and whether it takes one dict of tensors."""
    try:
        arguments = module.forward.schema.arguments[1:]
    except (AttributeError, RuntimeError) as exc:
        raise LoadError(
            f"failed to load model '{settings.name}': it has no method forward", Code.INTERNAL
        ) from exc
    kinds = [argument.type.kind() for argument in arguments]
    if kinds == ["DictType"]:
        return [], True
    if "DictType" in kinds:
        raise LoadError(
            "Multiple inputs of kind DictType were detected. Only a single input of type Dict(str, "
            "Tensor) is "
            "supported.",
            Code.INTERNAL,
        )
    for argument, kind in zip(arguments, kinds, strict=True):
        if kind not in _TENSOR_KINDS:
            raise LoadError(
                f"An input of type '{argument.type.annotation_str}' was detected in the model. Only a single "
                "input of type Dict(str, Tensor) or input(s) of type Tensor are supported.",
                Code.INTERNAL,
            )
    if len(arguments) != len(settings.inputs):
        raise LoadError(
            f"unable to load model '{settings.name}', configuration expects {len(settings.inputs)} inputs, "
            f"model provides {len(arguments)}"
        )
    return [argument.name for argument in arguments], False


def _check_kinds(torch: Any, outputs: list[Any], *, several: bool) -> None:
    for index, value in enumerate(outputs):
        strings = isinstance(value, list) and all(isinstance(element, str) for element in value)
        if strings or isinstance(value, torch.Tensor):
            continue
        if several or isinstance(value, list):
            where = f"output at index {index}" if several else "output"
            kind = type(value).__name__
            raise ValueError(f"{where} must be of type Tensor or List[str], received {kind}")
        raise ValueError(
            "output must be of type Tensor, List[str] or Tuple containing one of these two types. It "
            "should not "
            "be a List / Dictionary of Tensors or a Scalar"
        )
