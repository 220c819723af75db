"""Models in PyTorch's formats: TorchScript, exported programs and AOTInductor packages."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repobuild_serve.backends.parameters import Placement, no_gpu, placement
from repobuild_serve.backends.pytorch_archive import Kind, kind_of, refuse_pickles
from repobuild_serve.backends.pytorch_parameters import Parameters, ProcessSettings, read
from repobuild_serve.backends.pytorch_pt2 import (
    compiled_call,
    exported_call,
    load_compiled,
    load_exported,
)
from repobuild_serve.backends.pytorch_script import load_script, script_call
from repobuild_serve.backends.pytorch_tensors import check_types, from_torch, to_torch
from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.errors import Code, LoadError, RequestError

if TYPE_CHECKING:
    import numpy as np

_LOG = logging.getLogger(__name__)
# PyTorch imports, and the warning filters around its loaders, bear one thread at a time.
_LOADING = threading.RLock()
_COMPILED_PLATFORM = "torch_aoti"


class PyTorchBackend:
    """The ``pytorch`` backend; PyTorch is imported when the first model of it is loaded."""

    platform = "pytorch_libtorch"
    default_filename = "model.pt"
    default_count = 1
    without_effect = ("optimization.graph.level", "optimization.execution_accelerators")
    text_only = True

    def __init__(self) -> None:
        self._process = ProcessSettings()
        self._shared: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()

    def uses_gpus(self) -> bool:
        """See ``ModelBackend.uses_gpus``."""
        try:
            return bool(_torch("").cuda.is_available())
        except LoadError:
            # The load tells that PyTorch is missing; where the model would run matters no more.
            return False

    def complete(self, config: Any, path: Path) -> None:
        """Nothing is completed, as with Triton: the files name no types and shapes, or not all.

        Raises:
            LoadError: Inputs or outputs are missing.
        """
        for role, items in (("input", config.input), ("output", config.output)):
            if not items:
                raise LoadError(
                    f"model configuration must contain at least one {role}, none were specified: "
                    f"auto-complete is not supported for the pytorch backend, so that config.pbtxt of "
                    f"'{config.name}' must name the inputs and outputs of {path.name}",
                    Code.INTERNAL,
                )

    def open(self, settings: ModelSettings, path: Path, instance_name: str) -> PyTorchInstance:
        """See ``Backend.open``."""
        _refuse_optional(settings)
        kind = kind_of(settings.name, path)
        _check_platform(settings, kind, path)
        check_types(settings, strings=kind is Kind.SCRIPT)
        parameters = read(settings)
        torch = _torch(settings.name)
        place = placement(settings, instance_name)
        if place.on_gpu and not torch.cuda.is_available():
            raise no_gpu(settings, instance_name, "PyTorch finds none")
        self._process.claim(torch, settings.name, parameters)
        try:
            with _loading(), parameters.running(torch):
                call, model = self._load(torch, settings, path, kind, place, parameters)
        except BaseException:
            self._process.release(settings.name, parameters)
            raise
        _LOG.debug("instance %s holds %s, %s", instance_name, path, kind.value)
        device = torch.device("cuda", place.device) if place.on_gpu else None
        return PyTorchInstance(
            torch,
            settings,
            call,
            model,
            parameters,
            device,
            lambda: self._process.release(settings.name, parameters),
        )

    def _load(
        self,
        torch: Any,
        settings: ModelSettings,
        path: Path,
        kind: Kind,
        place: Placement,
        parameters: Parameters,
    ) -> tuple[Callable[[list[Any]], list[Any]], Any]:
        name = settings.name
        if kind is not Kind.SCRIPT:
            refuse_pickles(torch, name, path)
        device = torch.device("cuda", place.device) if place.on_gpu else None
        if kind is Kind.EXPORTED:
            program = self._model(settings, path, place, parameters, lambda: load_exported(torch, name, path))
            return exported_call(torch, settings, program, device), program
        if kind is Kind.COMPILED:
            package = self._model(
                settings, path, place, parameters, lambda: load_compiled(torch, name, path, place)
            )
            return compiled_call(settings, package), package
        target = None if place.kind == "KIND_MODEL" else device or torch.device("cpu")
        module = self._model(
            settings, path, place, parameters, lambda: load_script(torch, name, path, target)
        )
        return script_call(torch, settings, module), module

    def _model(
        self,
        settings: ModelSettings,
        path: Path,
        place: Placement,
        parameters: Parameters,
        load: Callable[[], Any],
    ) -> Any:
        """What ``load`` gives, or what another instance on the same device has, if weights are shared."""
        if not parameters.share_weights:
            return load()
        status = path.stat()
        key = (settings.name, str(path), status.st_ino, status.st_mtime_ns, place.on_gpu and place.device)
        model = self._shared.get(key)
        if model is None:
            model = self._shared[key] = load()
        return model


class PyTorchInstance:
    """An instance of the ``pytorch`` backend.

    Args:
        torch: The ``torch`` module.
        settings: The model's configuration.
        call: Runs the model: inputs in config order to outputs in config order.
        model: What ``call`` uses; kept here so that instances that share it keep it alive.
        parameters: The model's parameters.
        device: ``torch.device`` of the inputs, or None for the CPU.
        release: Called when the instance is closed.
    """

    def __init__(
        self,
        torch: Any,
        settings: ModelSettings,
        call: Callable[[list[Any]], list[Any]],
        model: Any,
        parameters: Parameters,
        device: Any,
        release: Callable[[], None],
    ) -> None:
        self._torch = torch
        self._settings = settings
        self._call: Callable[[list[Any]], list[Any]] | None = call
        self._model = model
        self._parameters = parameters
        self._device = device
        self._release = release

    def run(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        """See ``Instance.run``."""
        assert self._call is not None
        torch, settings = self._torch, self._settings
        with self._parameters.running(torch):
            values = [to_torch(torch, item, inputs[item.name], self._device) for item in settings.inputs]
            try:
                outputs = self._call(values)
            except RequestError:
                raise
            except Exception as exc:
                raise RequestError(f"PyTorch execute failure: {exc}", Code.INTERNAL, plain=True) from exc
            pairs = zip(settings.outputs, outputs, strict=True)
            arrays = [from_torch(torch, item, value) for item, value in pairs]
        if self._parameters.clean_cache and self._device is not None:
            torch.cuda.empty_cache()
        return arrays

    def close(self) -> None:
        """See ``Instance.close``."""
        if self._call is not None:
            self._call = self._model = None
            self._release()


def _refuse_optional(settings: ModelSettings) -> None:
    for item in settings.inputs:
        if item.optional:
            raise LoadError(
                f"'optional' is set to true for input '{item.name}' while the backend model doesn't support "
                "optional input"
            )


def _check_platform(settings: ModelSettings, kind: Kind, path: Path) -> None:
    compiled = settings.platform == _COMPILED_PLATFORM
    if compiled == (kind is Kind.SCRIPT):
        fitting = PyTorchBackend.platform if compiled else _COMPILED_PLATFORM
        raise LoadError(
            f"failed to load model '{settings.name}': '{path}' is {kind.value}, whose platform is "
            f"'{fitting}', "
            f"but the configuration says platform '{settings.platform}'",
            Code.INTERNAL,
        )


@contextlib.contextmanager
def _loading() -> Iterator[None]:
    with _LOADING, warnings.catch_warnings():
        # TorchScript is what Triton's users have; that PyTorch would rather see it go helps no one here.
        warnings.filterwarnings(
            "ignore", r"`torch\.jit\.\w+` is (deprecated|not supported)", DeprecationWarning
        )
        yield


def _torch(name: str) -> Any:
    with _LOADING:
        try:
            import torch
        except ImportError as exc:
            raise LoadError(
                f"failed to load model '{name}': PyTorch is not installed ({exc}); pip install "
                "'repobuild[torch]'",
                Code.UNAVAILABLE,
            ) from exc
    return torch
