"""Bringing up versions of models. Everything here takes its time and runs on loading threads."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild_serve.backends.model_backend import Opening, fields_without_effect, takes_text_only
from repobuild_serve.backends.parameters import placement
from repobuild_serve.config.complete import resolve_instances
from repobuild_serve.config.override import parse_override
from repobuild_serve.config.settings import ModelSettings, settings_from
from repobuild_serve.config.support import warn_of_no_effect
from repobuild_serve.core.model import ModelVersion, Runner
from repobuild_serve.core.services import Services
from repobuild_serve.core.statistics import Statistics
from repobuild_serve.ensembles.labels import with_inherited
from repobuild_serve.ensembles.runner import EnsembleRunner
from repobuild_serve.errors import Code, ConfigError, LoadError, StartError
from repobuild_serve.gpus import MIN_COMPUTE_CAPABILITY, Gpu, numbers
from repobuild_serve.lifecycle.fingerprint import Fingerprint, fingerprint
from repobuild_serve.lifecycle.instances import Change, signatures
from repobuild_serve.lifecycle.overrides import Overrides, Scratch
from repobuild_serve.repository import ModelFolder, find_model, model_file, read_model, version_path
from repobuild_serve.scheduling.direct import DirectFormer
from repobuild_serve.scheduling.former import Former
from repobuild_serve.scheduling.forming import BatchFormer
from repobuild_serve.scheduling.holding import requests_to_hold
from repobuild_serve.scheduling.scheduler import Scheduler
from repobuild_serve.scheduling.workers import Worker
from repobuild_serve.warmup import warm_up
from repobuild_serve.wire.classification import read_labels
from repobuild_serve.wire.plan import InferPlan

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """How model folders are read.

    Attributes:
        repositories: Where models are looked for.
        auto_complete: Whether missing parts of a config are taken from the model.
        config_name: Value of ``--model-config-name``; empty for none.
        gpus: The GPUs of this machine.
        min_compute_capability: What they had to offer to be among them.
    """

    repositories: Sequence[Path]
    auto_complete: bool = True
    config_name: str = ""
    gpus: tuple[Gpu, ...] = ()
    min_compute_capability: float = MIN_COMPUTE_CAPABILITY


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A model as it was read: what its versions are, or were, loaded from.

    Attributes:
        folder: Its folder and config.
        print: State of its files, taken before anything was read; None if they are not in a repository.
        scratch: The folder that stands in for the one in the repository, if the files came with a request.
    """

    folder: ModelFolder
    print: Fingerprint | None
    scratch: Scratch | None = None

    def discard(self) -> None:
        """Remove the files that came with a request."""
        if self.scratch is not None:
            self.scratch.remove()


def read_source(name: str, overrides: Overrides, reading: Reading, known: Source | None) -> Source | None:
    """Read a model for a load.

    Args:
        name: Model name.
        overrides: What the request brought along.
        reading: How to read.
        known: What its READY versions were loaded from.

    Returns:
        None if nothing has changed since ``known`` was read.

    Raises:
        ConfigError: There is no such model, or it is not usable ("poll" failure).
    """
    if overrides.files:
        return _read_files(name, overrides, reading)
    path = find_model(reading.repositories, name)
    if not path.is_dir():
        raise ConfigError(f"Model directory path is not a directory: {path}")
    try:
        state = fingerprint(path)
    except OSError as exc:
        raise ConfigError(f"failed to read model folder {path}: {exc.strerror or exc}") from exc
    if known is not None and known.print == state and overrides.config is None:
        return None
    config = None if overrides.config is None else parse_override(overrides.config)
    folder = read_model(
        path,
        name=name,
        auto_complete=reading.auto_complete,
        config=config,
        config_name=reading.config_name,
        gpus=reading.gpus,
        min_compute_capability=reading.min_compute_capability,
    )
    return Source(folder, state)


def _read_files(name: str, overrides: Overrides, reading: Reading) -> Source:
    if overrides.config is None:
        raise ConfigError("Load parameter 'config' must be specified for model file override")
    config = parse_override(overrides.config)
    scratch = Scratch()
    try:
        scratch.write(overrides.files)
        folder = read_model(
            scratch.path,
            name=name,
            auto_complete=reading.auto_complete,
            config=config,
            gpus=reading.gpus,
            min_compute_capability=reading.min_compute_capability,
        )
    except BaseException:
        scratch.remove()
        raise
    return Source(folder, None, scratch)


def load_version(folder: ModelFolder, number: int, services: Services, retries: int) -> ModelVersion:
    """Bring up one version, trying again ``retries`` times.

    Raises:
        LoadError: It cannot be brought up.
        StartError: A package is missing.
    """
    for left in range(retries, -1, -1):
        try:
            with told_as_load_error(folder.name, number):
                return _load_version(folder, number, services)
        except LoadError as exc:
            _LOG.error("failed to load '%s' version %d: %s", folder.name, number, exc.text)
            if not left:
                raise
    raise AssertionError("unreachable")


@contextlib.contextmanager
def told_as_load_error(name: str, number: int) -> Iterator[None]:
    """Turn what a backend plug-in may raise into the error of a load.

    Raises:
        LoadError: Anything but a missing package was raised.
    """
    try:
        yield
    except (LoadError, StartError):
        raise
    except Exception as exc:
        _LOG.exception("model %s, version %d: unexpected error", name, number)
        raise LoadError(f"{type(exc).__name__}: {exc}", Code.INTERNAL) from exc


def _load_version(folder: ModelFolder, number: int, services: Services) -> ModelVersion:
    if folder.problem is not None:
        raise folder.problem
    began = time.monotonic()
    settings = resolved_settings(folder)
    labels: list[Sequence[str]] = [
        read_labels(folder.path, output.label_filename) for output in settings.outputs
    ]
    if settings.steps:
        labels = with_inherited(settings, labels, services)
    statistics = Statistics()
    plan = InferPlan(settings, number, labels)
    runner = runner_for(settings, folder, plan, statistics, services)
    seconds = time.monotonic() - began
    _LOG.info("loaded '%s' version %d in %.3f s, %s", folder.name, number, seconds, _summary(settings))
    return ModelVersion(settings, number, runner, labels, statistics, seconds)


def resolved_settings(folder: ModelFolder) -> ModelSettings:
    """The settings of a model, with instance groups as they are on this machine.

    Raises:
        LoadError: An instance group cannot be had.
    """
    config: Any = type(folder.config)()
    config.CopyFrom(folder.config)
    warn_of_no_effect(config, fields_without_effect(folder.backend))
    resolve_instances(config, numbers(folder.gpus), folder.min_compute_capability)
    return settings_from(config, folder.path, text_only=takes_text_only(folder.backend))


def runner_for(
    settings: ModelSettings,
    folder: ModelFolder,
    plan: InferPlan,
    statistics: Statistics,
    services: Services,
) -> Runner:
    """What answers the requests of a version: the one place that chooses it by the kind of the model.

    Raises:
        LoadError: It cannot be brought up.
        StartError: A package is missing.
    """
    if settings.steps:
        return EnsembleRunner(settings, services, statistics)
    hold = requests_to_hold(os.environ)
    workers = open_workers(settings, folder, settings.instance_names, plan, statistics, services)
    batching = settings.batching
    former: Former = BatchFormer(batching, len(workers), hold=hold) if batching else DirectFormer()
    return Scheduler(
        former,
        workers,
        statistics,
        batched=settings.batched,
        fixed_size=all(item.datatype.size and not item.variable for item in settings.inputs),
        preserve_ordering=batching is not None and batching.preserve_ordering,
    )


def open_workers(
    settings: ModelSettings,
    folder: ModelFolder,
    names: Sequence[str],
    plan: InferPlan,
    statistics: Statistics,
    services: Services,
) -> list[Worker]:
    """Bring up instances and warm them up; all of them or none.

    Raises:
        LoadError: One cannot be brought up.
        StartError: A package is missing.
    """
    assert folder.backend is not None
    workers: list[Worker] = []
    try:
        for name in names:
            path = _file_of(folder, settings, plan.version, name)
            worker = folder.backend.worker(Opening(settings, plan.version, path, name, services))
            workers.append(worker)
            warm_up(settings, worker, plan, statistics)
    except BaseException:
        for worker in workers:
            worker.stop()
        raise
    return workers


def _file_of(folder: ModelFolder, settings: ModelSettings, version: int, instance: str) -> Path:
    """The model file of an instance."""
    assert folder.backend is not None
    place = placement(settings, instance)
    gpu = next((gpu for gpu in folder.gpus if place.on_gpu and gpu.number == place.device), None)
    path = model_file(settings.message, folder.backend, version_path(folder, version), gpu)
    if not path.exists():
        raise LoadError(
            f"failed to load model '{folder.name}': the model file '{path}' does not exist", Code.NOT_FOUND
        )
    return path


def prepare_change(
    version: ModelVersion, workers: Sequence[Worker], folder: ModelFolder, services: Services
) -> Change:
    """Bring up the instances that a version lacks under a new config, which differs in nothing else.

    Args:
        version: The version, which serves meanwhile.
        workers: Its instances.
        folder: The model under the new config.
        services: What instances may ask for.

    Raises:
        LoadError: An instance cannot be brought up; the version is as it was.
    """
    settings = resolved_settings(folder)
    change = Change.between(
        workers, version.signatures or signatures(version.settings), signatures(settings), settings
    )
    if change.missing:
        plan = InferPlan(settings, version.version, version.labels)
        with told_as_load_error(folder.name, version.version):
            change.added += open_workers(settings, folder, change.missing, plan, change.statistics, services)
    return change


def _summary(settings: ModelSettings) -> str:
    count = len(settings.instance_names)
    batching = settings.batching
    if batching is None:
        how = "no dynamic batching"
    else:
        how = f"batches up to {batching.max_batch_size}, queue delay {batching.delay_ns / 1000:g} us"
    return f"{count} instance{'s' if count != 1 else ''}, {how}"
