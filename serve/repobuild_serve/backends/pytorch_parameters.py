"""The parameters of PyTorch models, and the switches among them that PyTorch has only one of per process."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from repobuild_serve.backends.parameters import boolean, integer, where
from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.errors import LoadError

_LOG = logging.getLogger(__name__)
_LOCAL = ("DISABLE_OPTIMIZED_EXECUTION", "INFERENCE_MODE", "ENABLE_WEIGHT_SHARING", "ENABLE_CACHE_CLEANING")
_SWITCHES = ("DISABLE_CUDNN", "ENABLE_JIT_EXECUTOR", "ENABLE_JIT_PROFILING", "ENABLE_TENSOR_FUSER")
_COUNTS = ("INTRA_OP_THREAD_COUNT", "INTER_OP_THREAD_COUNT")


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a config asks of PyTorch.

    Attributes:
        optimized: Whether TorchScript optimizes the graph in its first runs.
        inference_mode: Whether runs are in inference mode; otherwise gradients are only not recorded.
        share_weights: Whether the instances of a model on one device share its module.
        clean_cache: Whether the GPU's cache of free memory is emptied after each run.
        switches: Values of the process-wide switches that the config names.
        counts: Values, above 0, of the process-wide thread counts that the config names.
    """

    optimized: bool = True
    inference_mode: bool = True
    share_weights: bool = False
    clean_cache: bool = False
    switches: dict[str, bool] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self, torch: Any) -> Iterator[None]:
        """The state of the calling thread in which a model is loaded and run."""
        with (
            torch.inference_mode(self.inference_mode),
            torch.no_grad(),
            torch.jit.optimized_execution(self.optimized),
        ):
            yield


def read(settings: ModelSettings) -> Parameters:
    """The parameters of a model.

    Raises:
        LoadError: A value is neither a switch nor a number, whichever it should be.
    """
    given = settings.parameters
    switches = {
        key: boolean(given[key], where(settings, key)) for key in (*_LOCAL, *_SWITCHES) if key in given
    }
    counts = {key: integer(given[key], where(settings, key)) for key in _COUNTS if key in given}
    for key in given.keys() - {*_LOCAL, *_SWITCHES, *_COUNTS}:
        _LOG.warning("model %s: the pytorch backend has no parameter '%s'", settings.name, key)
    return Parameters(
        optimized=not switches.get("DISABLE_OPTIMIZED_EXECUTION", False),
        inference_mode=switches.get("INFERENCE_MODE", True),
        share_weights=switches.get("ENABLE_WEIGHT_SHARING", False),
        clean_cache=switches.get("ENABLE_CACHE_CLEANING", False),
        switches={key: value for key, value in switches.items() if key in _SWITCHES},
        counts={key: value for key, value in counts.items() if value > 0},
    )


class ProcessSettings:
    """The settings that hold for all PyTorch models of the process, and which models asked for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._switches: dict[str, list[tuple[str, bool]]] = {}
        self._counts: dict[str, tuple[str, int]] = {}

    def claim(self, torch: Any, name: str, parameters: Parameters) -> None:
        """Set what a model asks for; each claim that succeeds is to be released.

        Of thread counts the first holds, as with Triton, and a later one that differs is warned of.

        Raises:
            LoadError: A loaded model asks for the contrary of a switch.
        """
        with self._lock:
            for key, value in parameters.switches.items():
                for other, theirs in self._switches.get(key, []):
                    if theirs != value and other != name:
                        raise LoadError(
                            f"parameter '{key}' holds for all PyTorch models of the server: model "
                            f"'{name}' asks "
                            f"for {_word(value)}, model '{other}' for {_word(theirs)}"
                        )
            for key, value in parameters.switches.items():
                self._switches.setdefault(key, []).append((name, value))
                _set_switch(torch, key, value=value)
            for key, count in parameters.counts.items():
                holder, held = self._counts.setdefault(key, (name, count))
                if held != count:
                    _LOG.warning(
                        "model %s: parameter '%s' is ignored: model %s has set it to %d for the whole server",
                        name,
                        key,
                        holder,
                        held,
                    )
                elif holder == name:
                    _set_count(torch, name, key, count)

    def release(self, name: str, parameters: Parameters) -> None:
        """Forget one claim of a model; the switches stay as they are."""
        with self._lock:
            for key, value in parameters.switches.items():
                self._switches[key].remove((name, value))


def _word(value: bool) -> str:
    return "true" if value else "false"


def _set_switch(torch: Any, key: str, *, value: bool) -> None:
    if key == "DISABLE_CUDNN":
        torch.backends.cudnn.enabled = not value
    elif key == "ENABLE_JIT_EXECUTOR":
        torch._C._jit_set_profiling_executor(value)  # noqa: SLF001 - PyTorch has no public name for it
    elif key == "ENABLE_JIT_PROFILING":
        torch._C._jit_set_profiling_mode(value)  # noqa: SLF001 - likewise
    else:
        torch._C._jit_set_texpr_fuser_enabled(value)  # noqa: SLF001 - likewise


def _set_count(torch: Any, name: str, key: str, count: int) -> None:
    if key == "INTRA_OP_THREAD_COUNT":
        if torch.get_num_threads() != count:
            torch.set_num_threads(count)
        return
    if torch.get_num_interop_threads() == count:
        return
    try:
        torch.set_num_interop_threads(count)
    except RuntimeError:
        _LOG.warning(
            "model %s: parameter '%s' is ignored: PyTorch has already started its %d threads between "
            "operators",
            name,
            key,
            torch.get_num_interop_threads(),
        )
