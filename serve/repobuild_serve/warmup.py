"""Running a model's warm-up samples on an instance before it serves (Triton contract, warm-up)."""

from __future__ import annotations

import logging
import time
from math import prod
from pathlib import Path

from repobuild_serve.config.settings import ModelSettings, TensorConfig, WarmupInput, WarmupSample
from repobuild_serve.core.statistics import Statistics
from repobuild_serve.core.ticket import Ticket
from repobuild_serve.errors import Code, LoadError, RequestError
from repobuild_serve.scheduling.workers import Worker
from repobuild_serve.wire.plan import InferPlan
from repobuild_serve.wire.strings import count_strings

_LOG = logging.getLogger(__name__)
_MOST_REQUESTS = 1 << 20
_MOST_BYTES = 4 << 30
"""Of one batch: several times what all clients together may send before anything of it is answered."""
_LENGTH_WORD = 4
_STRING_COST = 64
"""Bytes of memory that the shortest string takes while a batch runs."""


def warm_up(settings: ModelSettings, worker: Worker, plan: InferPlan, statistics: Statistics) -> None:
    """Run every sample of the config on one instance, and count it.

    Raises:
        LoadError: A sample does not fit the model, or the model fails on it.
    """
    for sample in settings.warmup:
        if sample.batch_size == 0:
            continue
        tickets = _tickets(settings, sample, plan, worker.name)
        rows = sum(ticket.rows for ticket in tickets)
        for _ in range(sample.count):
            queued = time.monotonic_ns()
            outcome = worker.run_here(tickets, rows)
            waited = len(tickets) * (outcome.timing.start - queued)
            if outcome.error is not None:
                statistics.failed_execution(rows, len(tickets), waited, outcome.timing)
                # Triton has the text once for each of the requests.
                raise LoadError(f"failed to run warmup sample '{sample.name}': {outcome.error.text}; ")
            statistics.executed(rows, len(tickets), waited, outcome.timing)


def _tickets(settings: ModelSettings, sample: WarmupSample, plan: InferPlan, instance: str) -> list[Ticket]:
    """The requests of a sample, which are one and the same request ``batch_size`` times over."""
    failed = f"failed to run warmup sample '{sample.name}'"
    if sample.batch_size > max(1, settings.max_batch_size):
        raise LoadError(
            f"{failed}: batch size {sample.batch_size} for '{instance}', max allowed is "
            f"{settings.max_batch_size}; "
        )
    if sample.batch_size > _MOST_REQUESTS:
        raise LoadError(
            f"{failed}: batch size {sample.batch_size} for '{instance}', this server warms up with "
            f"{_MOST_REQUESTS} requests at most"
        )
    given = {item.name: item for item in sample.inputs}
    for name in sorted(given.keys() - plan.inputs_by_name.keys()):
        _LOG.warning(
            "model %s: input '%s' of warm-up sample '%s' is left out: the model has none of that name",
            settings.name,
            name,
            sample.name,
        )
    buffers: list[bytes | None] = []
    shapes: list[tuple[int, ...] | None] = []
    try:
        for index, config in enumerate(settings.inputs):
            item = given.get(config.name)
            if item is None and config.optional:
                buffers.append(None)
                shapes.append(None)
                continue
            if item is None:
                raise _missing(settings, sample)
            _check_type(settings, item, config)
            buffer, dims = _data(settings, item, _MOST_BYTES // sample.batch_size)
            shape = plan.shape(index, [1, *dims] if settings.batched else dims)
            buffers.append(buffer)
            shapes.append(shape.dims)
    except RequestError as exc:
        raise LoadError(exc.told("")) from exc
    return [Ticket(-1, 1, 0, buffers, shapes)] * sample.batch_size


def _check_type(settings: ModelSettings, item: WarmupInput, config: TensorConfig) -> None:
    if item.datatype is not config.datatype:
        raise RequestError(
            f"inference input '{item.name}' data-type is '{item.datatype.wire}', but model "
            f"'{settings.name}' expects '{config.datatype.wire}'",
            tagged=True,
        )


def _missing(settings: ModelSettings, sample: WarmupSample) -> RequestError:
    known = {config.name for config in settings.inputs}
    names = [item.name for item in sample.inputs if item.name in known]
    missing = [config.name for config in settings.inputs if config.name not in names]
    got, lacking = (",".join(f"'{name}'" for name in group) for group in (names, missing))
    return RequestError(
        f"expected {len(settings.inputs)} inputs but got {len(names)} inputs for model '{settings.name}'. "
        f"Got input(s) [{got}], but missing required input(s) [{lacking}]. Please provide all required "
        "input(s).",
        tagged=True,
    )


def _data(settings: ModelSettings, item: WarmupInput, most: int) -> tuple[bytes, list[int]]:
    """The packed tensor of one request, of ``most`` bytes at most, and its dims."""
    if any(dim < 0 for dim in item.dims):
        raise LoadError(
            f"warmup setting expects all variable-size dimensions are specified for input '{item.name}'"
        )
    count = prod(item.dims)
    _check_size(item, count * (item.datatype.size or _STRING_COST), most)
    if item.source == "zero_data":
        data = bytes(count * (item.datatype.size or _LENGTH_WORD))
    elif item.source == "random_data":
        data = _random(item, count)
    elif item.source == "input_data_file":
        data = _file(settings.folder, item, count, most)
    else:
        raise RequestError(
            f"warmup setting expects input '{item.name}' to have input_data_type set", tagged=True
        )
    return data, list(item.dims)


def _random(item: WarmupInput, count: int) -> bytes:
    import numpy as np

    if not item.datatype.size:
        return bytes(count * _LENGTH_WORD)
    generator = np.random.default_rng(0)
    if item.datatype.wire == "FP64" or item.datatype.wire.startswith("FP"):
        return generator.random(count).astype(item.datatype.numpy).tobytes()
    if item.datatype.wire == "BOOL":
        return bytes(generator.integers(0, 2, count, dtype=np.uint8))
    return generator.integers(0, 128, count).astype(item.datatype.numpy).tobytes()


def _check_size(item: WarmupInput, size: int, most: int) -> None:
    if size > most:
        raise LoadError(
            f"warmup setting asks for more data of input '{item.name}' than this server warms up with: "
            f"{_MOST_BYTES} bytes in a batch"
        )


def _file(folder: Path, item: WarmupInput, count: int, most: int) -> bytes:
    # Below the folder, as with Triton, even where the name begins with a slash.
    path = folder / "warmup" / item.data_file.lstrip("/")
    try:
        _check_size(item, path.stat().st_size, most)
        data = path.read_bytes()
    except OSError as exc:
        text = f"failed to open text file for read {path}: {exc.strerror}"
        raise LoadError(text, Code.INTERNAL) from exc
    if item.datatype.size:
        if len(data) != count * item.datatype.size:
            raise LoadError(
                f"warmup setting expects {count * item.datatype.size} bytes in the file of input "
                f"'{item.name}', "
                f"but {path} has {len(data)}"
            )
    else:
        elements, left, _ = count_strings(data)
        if left or elements != count:
            raise LoadError(
                f"warmup setting expects {count} strings in the file of input '{item.name}', "
                f"but {path} has {elements}" + (" and a broken one" if left else "")
            )
    return data
