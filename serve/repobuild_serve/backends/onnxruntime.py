"""Models in ONNX format, run by ONNX Runtime: one session per instance."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repobuild_serve.backends import onnx_check, onnx_complete
from repobuild_serve.backends.onnx_errors import onnx_text
from repobuild_serve.backends.onnx_instance import OnnxInstance
from repobuild_serve.backends.onnx_libraries import register_libraries
from repobuild_serve.backends.onnx_options import run_options, session_options
from repobuild_serve.backends.onnx_providers import CPU, CUDA, Provider, providers
from repobuild_serve.backends.parameters import boolean, integer, placement
from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.errors import Code, LoadError, StartError

_LOG = logging.getLogger(__name__)
_DEFAULT_MAX_BATCH_SIZE = 4
_OPTIONS = frozenset(
    {"default-max-batch-size", "enable-global-threadpool", "intra_op_thread_count", "inter_op_thread_count"}
)


class OnnxRuntimeBackend:
    """The ``onnxruntime`` backend (Triton contract, backend parameters)."""

    platform = "onnxruntime_onnx"
    default_filename = "model.onnx"
    default_count = 2
    text_only = True

    def __init__(self) -> None:
        self._default_max_batch_size = _DEFAULT_MAX_BATCH_SIZE
        self._global_threads = False
        self._pool: tuple[int, int] | None = None
        self._lock = threading.Lock()

    def configure(self, own: Mapping[str, str], shared: Mapping[str, str]) -> None:
        """See ``ModelBackend.configure``.

        Args:
            own: ``default-max-batch-size``, ``enable-global-threadpool`` and, for the global pool,
                ``intra_op_thread_count`` and ``inter_op_thread_count`` (0 or none: one per core).
            shared: ``default-max-batch-size``.

        Raises:
            StartError: A key is unknown, or a value is of the wrong kind.
        """
        unknown = sorted(own.keys() - _OPTIONS)
        if unknown:
            raise _misconfigured(f"the onnxruntime backend has no setting '{unknown[0]}'")
        options = {key: text for key, text in shared.items() if key in _OPTIONS} | dict(own)
        try:
            values = {
                key: integer(text, f"--backend-config=onnxruntime,{key}")
                for key, text in options.items()
                if key != "enable-global-threadpool"
            }
            key = "enable-global-threadpool"
            threads_shared = boolean(options.get(key, "0"), f"--backend-config=onnxruntime,{key}")
        except LoadError as exc:
            raise _misconfigured(exc.text) from exc
        self._default_max_batch_size = max(0, values.get("default-max-batch-size", _DEFAULT_MAX_BATCH_SIZE))
        if threads_shared:
            within, across = (max(0, values.get(f"{kind}_op_thread_count", 0)) for kind in ("intra", "inter"))
            self._pool = within, across
            self._global_threads = True
            try:
                self._runtime()
            except StartError as exc:
                # Whoever has a model for it will say so; others are served.
                _LOG.warning("onnxruntime: its settings have no effect yet: %s", exc.text)
        elif values.keys() & {"intra_op_thread_count", "inter_op_thread_count"}:
            _LOG.warning("onnxruntime: thread counts have no effect without enable-global-threadpool")

    def _runtime(self) -> Any:
        """ONNX Runtime, with its global thread pool set up before anything uses it.

        Raises:
            StartError: It is not installed.
        """
        ort = _onnxruntime()
        with self._lock:
            if self._pool is not None:
                ort.set_global_thread_pool_sizes(*self._pool)
                self._pool = None
        return ort

    def uses_gpus(self) -> bool:
        """See ``ModelBackend.uses_gpus``: whether the installed build has CUDA."""
        return CUDA in self._runtime().get_available_providers()

    def complete(self, config: Any, path: Path) -> None:
        """See ``Backend.complete``."""
        if onnx_complete.is_complete(config):
            return
        ort = self._runtime()
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        # A session that only tells names and types needs no threads of its own.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        register_libraries(options, config, path)
        session = _session(ort, path, options, [(CPU, {})])
        onnx_complete.complete(config, session, self._default_max_batch_size)

    def open(self, settings: ModelSettings, path: Path, instance_name: str) -> OnnxInstance:
        """See ``Backend.open``."""
        ort = self._runtime()
        place = placement(settings, instance_name)
        wanted = providers(settings, place, instance_name, ort.get_available_providers())
        options = session_options(ort, settings, on_gpu=place.on_gpu, global_threads=self._global_threads)
        register_libraries(options, settings.message, path)
        run = run_options(ort, settings)
        session = _session(ort, path, options, wanted)
        onnx_check.check(settings, session)
        _LOG.debug("instance %s holds %s", instance_name, path)
        return OnnxInstance(session, settings, run)


def _session(ort: Any, path: Path, options: Any, wanted: list[Provider]) -> Any:
    if path.is_dir():
        path /= "model.onnx"
    if not path.exists():
        raise LoadError(f"unable to find '{path}'", Code.UNAVAILABLE)
    try:
        # Without enable_fallback=0 a provider that fails is left out in silence, here and in later runs.
        session = ort.InferenceSession(str(path), options, providers=wanted, enable_fallback=0)
    except Exception as exc:
        raise LoadError(onnx_text(exc) or f"onnx runtime error: {exc}", Code.INTERNAL) from exc
    missing = [name for name, _ in wanted if name not in session.get_providers()]
    if missing:
        raise LoadError(
            f"onnx runtime error: {', '.join(missing)} could not be started; the log has ONNX "
            "Runtime's own message",
            Code.INTERNAL,
        )
    return session


def _misconfigured(text: str) -> StartError:
    return StartError(
        "backend-config-invalid",
        text,
        hint=f"the settings of --backend-config=onnxruntime are {', '.join(sorted(_OPTIONS))}",
        exit_code=2,
    )


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as exc:
        raise StartError(
            "onnxruntime-missing",
            "ONNX Runtime is not installed, and the repository has models for it",
            evidence=(str(exc),),
            hint="pip install 'repobuild[cpu]' (or 'repobuild[gpu]' on a machine with an NVIDIA GPU)",
            exit_code=7,
        ) from exc
    return onnxruntime
