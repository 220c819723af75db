"""Warm-up samples (Triton's backend_model_instance.cc, ``GenerateWarmupData``)."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

from repobuild.lint.files import Entry, open_file
from repobuild.lint.finding import Findings
from repobuild.lint.model import Model, View, enum_name

SIZES = {
    "TYPE_BOOL": 1, "TYPE_UINT8": 1, "TYPE_INT8": 1, "TYPE_UINT16": 2, "TYPE_INT16": 2, "TYPE_FP16": 2,
    "TYPE_BF16": 2, "TYPE_UINT32": 4, "TYPE_INT32": 4, "TYPE_FP32": 4, "TYPE_UINT64": 8, "TYPE_INT64": 8,
    "TYPE_FP64": 8,
}  # fmt: skip
"""Bytes of an element."""
_FLOATS = ("TYPE_FP16", "TYPE_BF16", "TYPE_FP32", "TYPE_FP64")
MOST_TEXTS = 10_000_000


def check_warmup(
    model: Model, view: View, inputs: Mapping[str, Any], findings: Findings, *, batch_known: bool
) -> None:
    """Check every ``model_warmup`` entry.

    Args:
        model: The model.
        view: The configuration.
        inputs: The model's inputs by name, as ModelInput messages; empty if they are not known.
        findings: Where findings go.
        batch_known: Whether ``max_batch_size`` is what the configuration says.
    """
    config = view.config
    if view.effective.backend == "ensemble":
        return
    # Tensors that the server itself makes may be given as well.
    controls = {c.name for c in config.sequence_batching.control_input}
    controls |= {name for item in config.batch_input for name in item.target_name}
    for index, sample in enumerate(config.model_warmup):
        if sample.batch_size == 0:
            place = view.where("model_warmup", index, "batch_size")
            findings.add("warmup-batch-zero", f"sample '{sample.name}' is skipped", *place)
            continue
        most = max(1, config.max_batch_size)
        if sample.batch_size > most and batch_known:
            findings.add(
                "warmup-batch-large",
                f"sample '{sample.name}' has batch size {sample.batch_size}, max allowed is {most}",
                *view.where("model_warmup", index, "batch_size"),
            )
        for name, wanted in inputs.items():
            if name not in sample.inputs and not wanted.optional:
                findings.add(
                    "warmup-input-missing",
                    f"sample '{sample.name}' lacks input '{name}'",
                    *view.where("model_warmup", index),
                )
        for name, item in sorted(sample.inputs.items()):
            at = view.positions.entry(name, "model_warmup", index, "inputs")
            known = inputs.get(name)
            if known is None and inputs and name not in controls:
                findings.add(
                    "warmup-input-unknown",
                    f"sample '{sample.name}' gives input '{name}', which the model has not",
                    *view.where(*at),
                )
            _check_input(model, view, name, item, known, at, findings)


def _check_input(
    model: Model,
    view: View,
    name: str,
    item: Any,
    known: Any,
    at: tuple[str | int, ...],
    findings: Findings,
) -> None:
    def add(rule: str, message: str, *below: str | int) -> None:
        findings.add(rule, message, *view.where(*at, "value", *below))

    kind, dims = enum_name(item, "data_type"), list(item.dims)
    if known is not None and known.data_type and known.data_type != item.data_type:
        add(
            "warmup-type",
            f"input '{name}' is {enum_name(known, 'data_type')}, the sample has {kind}",
            "data_type",
        )
    variable = [n for n, d in enumerate(dims) if d < 0]
    for number in variable:
        add(
            "warmup-dims-variable",
            f"warmup expects all variable-size dimensions are specified for input '{name}'",
            "dims",
            number,
        )
    if known is not None and known.dims and not variable and not _fits(dims, list(known.dims)):
        add("warmup-dims-unfit", f"input '{name}' has dims {list(known.dims)}, the sample {dims}", "dims")
    source = item.WhichOneof("input_data_type")
    if source is None:
        add("warmup-data-missing", f"input '{name}' needs zero_data, random_data or input_data_file")
    elif source == "random_data" and kind in _FLOATS:
        add("warmup-random-floats", f"random bytes for the float input '{name}'", "random_data")
    elif source == "random_data" and kind in SIZES and kind != "TYPE_BOOL":
        add("warmup-random-integers", f"random bytes for the integer input '{name}'", "random_data")
    elif source == "input_data_file" and not variable:
        _check_file(model, view, item, kind, dims, at, findings)


def _fits(dims: list[int], wanted: list[int]) -> bool:
    return len(dims) == len(wanted) and all(w in (-1, d) for d, w in zip(dims, wanted, strict=True))


def _check_file(
    model: Model,
    view: View,
    item: Any,
    kind: str,
    dims: list[int],
    at: tuple[str | int, ...],
    findings: Findings,
) -> None:
    name = item.input_data_file
    place = view.where(*at, "value", "input_data_file")
    found = model.at("warmup", *name.split("/"))
    if found is None or not found.is_file:
        elsewhere = model.at(*name.split("/")) is not None
        findings.add(
            "warmup-file-missing",
            f"warmup/{name} is not there",
            *place,
            evidence=["there is one outside of warmup/"] if elsewhere else [],
        )
        return
    count = math.prod(dims)
    if kind == "TYPE_STRING":
        wrong = _text_mistake(found, count)
        if wrong:
            findings.add("warmup-text", f"warmup/{name}: {wrong}", *place)
        return
    size = count * SIZES.get(kind, 0)
    if found.size < size:
        findings.add(
            "warmup-file-short", f"warmup/{name} has {found.size} bytes, {kind} {dims} needs {size}", *place
        )
    elif found.size > size and kind in SIZES:
        findings.add(
            "warmup-file-long", f"warmup/{name} has {found.size} bytes, {kind} {dims} takes {size}", *place
        )


def _text_mistake(entry: Entry, count: int) -> str | None:
    """What is wrong with a file of length-prefixed texts; lengths are read, texts are skipped."""
    at = seen = 0
    try:
        with open_file(entry) as file:
            while at < entry.size:
                file.seek(at)
                word = file.read(4)
                if len(word) < 4:
                    return f"element {seen} has {len(word)} bytes of its 4-byte length"
                length = struct.unpack("<I", word)[0]
                at += 4 + length
                if at > entry.size:
                    return f"element {seen} should have {length} bytes, {entry.size - at + length} are left"
                seen += 1
                if seen > max(count, MOST_TEXTS):
                    break
    except OSError as problem:
        return f"it cannot be read: {problem.strerror}"
    return None if seen == count else f"it has {seen} elements, dims give {count}"
