"""Which models and versions there are, and in which state (Triton contract, lifecycle; mode none)."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repobuild_serve.backends.model_backend import Opening
from repobuild_serve.config.complete import resolve_instances
from repobuild_serve.config.settings import ModelSettings, settings_from
from repobuild_serve.core.model import ModelVersion
from repobuild_serve.core.services import Services
from repobuild_serve.core.statistics import Statistics
from repobuild_serve.core.ticket import Sink
from repobuild_serve.errors import Code, ConfigError, LoadError, RequestError, StartError
from repobuild_serve.repository import ModelFolder, model_file, model_folders, read_model, version_path
from repobuild_serve.scheduling.direct import DirectFormer
from repobuild_serve.scheduling.forming import BatchFormer
from repobuild_serve.scheduling.scheduler import Former, Scheduler
from repobuild_serve.scheduling.workers import Worker
from repobuild_serve.warmup import warm_up
from repobuild_serve.wire.classification import read_labels
from repobuild_serve.wire.plan import InferPlan

_LOG = logging.getLogger(__name__)
_NATIVES = (
    "numpy",
    "google.protobuf.text_format",
    "google.protobuf.message_factory",
    "onnxruntime",
    "rapidjson",
)


@dataclass(slots=True)
class TrackedModel:
    """A model folder of the repository.

    Attributes:
        name: Model name.
        versions: READY versions by number.
        failed: Reason by version that could not be loaded.
        unreadable: Why the folder counts as not tracked; empty if it is.
    """

    name: str
    versions: dict[int, ModelVersion] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    unreadable: str = ""

    def latest(self) -> ModelVersion:
        """The highest READY version.

        Raises:
            RequestError: There is none.
        """
        if not self.versions:
            raise RequestError(
                f"Request for unknown model: '{self.name}' has no available versions",
                Code.NOT_FOUND,
                plain=True,
            )
        return self.versions[max(self.versions)]


class Models:
    """All models of a repository."""

    def __init__(self) -> None:
        self.tracked: dict[str, TrackedModel] = {}

    def load_all(
        self, repository: Path, services: Services, *, auto_complete: bool, threads: int
    ) -> list[str]:
        """Load every model. Called once, before any request, off the loop's thread.

        Returns:
            One line per model that is not fully READY.

        Raises:
            StartError: The repository is missing, or a package that its models need.
        """
        folders = model_folders(repository)
        import_natives()
        with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="load") as pool:
            for model in pool.map(
                lambda path: _load_model(path, services, auto_complete=auto_complete), folders
            ):
                self.tracked[model.name] = model
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        for model in self.tracked.values():
            if model.unreadable:
                yield f"{model.name}: {model.unreadable}"
            for version, reason in sorted(model.failed.items()):
                yield (
                    f"{model.name}, version {version}: {reason}"
                    if version >= 0
                    else f"{model.name}: {reason}"
                )

    def start(self, loop: asyncio.AbstractEventLoop, sink: Sink) -> None:
        """Start every instance; answers go to ``sink``."""
        for version in self.ready_versions():
            version.start(loop, sink)

    def find(self, name: str, version: str) -> ModelVersion:
        """The READY version that a path names; the highest one for an empty ``version``.

        Raises:
            RequestError: E1, E2, E3 or E5 of the Triton contract.
        """
        model = self.tracked.get(name)
        if model is None or model.unreadable:
            raise RequestError(
                f"Request for unknown model: '{name}' is not found", Code.NOT_FOUND, plain=True
            )
        if not version:
            return model.latest()
        found = model.versions.get(parse_version(version))
        if found is None:
            raise RequestError(
                f"Request for unknown model: '{name}' version {int(version)} is not found",
                Code.NOT_FOUND,
                plain=True,
            )
        return found

    def ready_versions(self) -> Iterable[ModelVersion]:
        """Every READY version, by model name and number."""
        for _, model in sorted(self.tracked.items()):
            for _, version in sorted(model.versions.items()):
                yield version

    def all_ready(self) -> bool:
        """Whether no tracked version failed; folders that could not be read do not count."""
        return not any(model.failed for model in self.tracked.values())

    def index(self, *, ready_only: bool) -> list[dict[str, str]]:
        """The repository index."""
        items: list[dict[str, str]] = []
        for name, model in sorted(self.tracked.items()):
            if not (model.versions or model.failed):
                if not ready_only:
                    items.append({"name": name})
                continue
            for number in sorted({*model.versions, *model.failed}):
                if number in model.versions:
                    items.append({"name": name, "version": str(number), "state": "READY"})
                elif not ready_only:
                    reason = model.failed[number]
                    entry = {"name": name, "state": "UNAVAILABLE", "reason": reason}
                    items.append({"name": name, "version": str(number), **entry} if number >= 0 else entry)
        return items

    async def load(self, name: str, parameters: Mapping[str, str | bytes]) -> None:
        """See ``Directory.load``."""
        raise _not_allowed()

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """See ``Directory.unload``."""
        raise _not_allowed()

    def busy(self) -> bool:
        """Whether any request waits or runs."""
        return any(version.busy() for version in self.ready_versions())

    def close(self) -> None:
        """Stop every instance."""
        for version in self.ready_versions():
            version.close()


def _not_allowed() -> RequestError:
    return RequestError("explicit model load / unload is not allowed if polling is enabled", Code.UNAVAILABLE)


def import_natives() -> None:
    """Import what the loading threads need, before there are such threads.

    Two threads that import NumPy or ONNX Runtime for the first time at once can each meet a half made
    module ("partially initialized"). What is not installed is left out here; whoever needs it says so.
    """
    for name in _NATIVES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def parse_version(text: str) -> int:
    """A version number from a path.

    Raises:
        RequestError: It is too large (E5 of the Triton contract).
    """
    number = int(text) if len(text) <= 19 else 1 << 63
    if number >= 1 << 63:
        raise RequestError(
            f"failed to get model version from specified version string '{text}' (details: stol), version "
            "should be "
            "an integral value > 0",
            plain=True,
        )
    return number


def _load_model(path: Path, services: Services, *, auto_complete: bool) -> TrackedModel:
    model = TrackedModel(path.name)
    try:
        folder = read_model(path, auto_complete=auto_complete)
    except ConfigError as exc:
        _LOG.error("Poll failed for model directory '%s': %s", model.name, exc.text)
        model.unreadable = exc.text
        return model
    if folder.problem is not None:
        for number in folder.versions or (-1,):
            _failed(model, number, folder.problem)
        return model
    loaded: dict[int, ModelVersion] = {}
    for number in folder.versions:
        try:
            loaded[number] = _load_version(folder, number, services)
        except LoadError as exc:
            _failed(model, number, exc)
        except StartError:
            raise
        except Exception as exc:  # noqa: BLE001 - a backend plug-in may raise anything; its model is then not loaded
            _LOG.exception("model %s, version %d: unexpected error", model.name, number)
            _failed(model, number, LoadError(f"{type(exc).__name__}: {exc}", Code.INTERNAL))
    if model.failed:
        # All selected versions load together: if one fails, none of the set is used.
        for number, version in loaded.items():
            version.close()
            model.failed[number] = "unloaded"
        return model
    model.versions = loaded
    return model


def _failed(model: TrackedModel, number: int, error: LoadError) -> None:
    model.failed[number] = f"{error.code.value}: {error.text}"
    where = f" version {number}" if number >= 0 else ""
    _LOG.error("failed to load '%s'%s: %s", model.name, where, error.text)


def _load_version(folder: ModelFolder, number: int, services: Services) -> ModelVersion:
    began = time.monotonic()
    config: Any = type(folder.config)()
    config.CopyFrom(folder.config)
    resolve_instances(config)
    settings = settings_from(config, folder.path)
    labels = [read_labels(folder.path, output.label_filename) for output in settings.outputs]
    assert folder.backend is not None
    path = model_file(config, folder.backend, version_path(folder, number))
    if not path.exists():
        raise LoadError(
            f"failed to load model '{folder.name}': the model file '{path}' does not exist", Code.NOT_FOUND
        )
    statistics = Statistics()
    plan = InferPlan(settings, number, labels)
    workers: list[Worker] = []
    try:
        for name in settings.instance_names:
            worker = folder.backend.worker(Opening(settings, number, path, name, services))
            workers.append(worker)
            warm_up(settings, worker, plan, statistics)
    except BaseException:
        for worker in workers:
            worker.stop()
        raise
    seconds = time.monotonic() - began
    _LOG.info("loaded '%s' version %d in %.3f s, %s", folder.name, number, seconds, _summary(settings))
    return ModelVersion(
        settings, number, _scheduler(settings, workers, statistics), labels, statistics, seconds
    )


def _scheduler(settings: ModelSettings, workers: Sequence[Worker], statistics: Statistics) -> Scheduler:
    batching = settings.batching
    former: Former = BatchFormer(batching, len(workers)) if batching else DirectFormer()
    return Scheduler(
        former,
        workers,
        statistics,
        batched=settings.batched,
        fixed_size=all(item.datatype.size and not item.variable for item in settings.inputs),
        preserve_ordering=batching is not None and batching.preserve_ordering,
    )


def _summary(settings: ModelSettings) -> str:
    count = len(settings.instance_names)
    batching = settings.batching
    if batching is None:
        how = "no dynamic batching"
    else:
        how = f"batches up to {batching.max_batch_size}, queue delay {batching.delay_ns / 1000:g} us"
    return f"{count} instance{'s' if count != 1 else ''}, {how}"
