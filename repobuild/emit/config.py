"""config.pbtxt: rendered, parsed back with Triton's own message, and checked against the graph."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild.emit.warmup import Warmup, WarmupSample
from repobuild.errors import EXIT_BUG, Evidence, InputInvalid, RepobuildError, evidence
from repobuild.serving import serving_config
from repobuild.templates import render
from repobuild.tensors import DType, Signature, TensorSpec
from repobuild.torch_names import position
from repobuild.triton import format_config, model_config, parse_config

CONFIG_FILE = "config.pbtxt"
TEMPLATE = "config.pbtxt.j2"
"""Names by whose number Triton's PyTorch backend finds a tensor."""

HEADER = "# Written by repobuild, which replaces this file only while the rest of it has sha256 "


@dataclass(frozen=True, slots=True)
class ConfigTensor:
    """One item of ``input`` or ``output``."""

    name: str
    data_type: str
    dims: tuple[int, ...]
    label_filename: str = ""


@dataclass(frozen=True, slots=True)
class ConfigContext:
    """What the template of config.pbtxt may use.

    Attributes:
        name: Model name.
        backend: Triton's backend.
        max_batch_size: 0 without a batch dimension.
        inputs: Inputs in graph order.
        outputs: Outputs in graph order.
        serving: All further fields as protobuf text, ending in a line break unless empty.
        warmup: Warm-up entries.
    """

    name: str
    backend: str
    max_batch_size: int
    inputs: tuple[ConfigTensor, ...]
    outputs: tuple[ConfigTensor, ...]
    serving: str
    warmup: tuple[WarmupSample, ...]


def complete_serving(
    serving: Mapping[str, Any], *, batched: bool, cpu_only: bool, parameters: Mapping[str, str]
) -> Any:
    """The ``serving:`` section with repobuild's defaults for what it leaves open.

    Defaults: dynamic batching without delay when there is a batch dimension, one instance on the CPU where
    the answers were checked on the CPU only, and the compiler's own parameters.

    Args:
        serving: The section.
        batched: Whether there is a batch dimension.
        cpu_only: Whether the artifact was checked on the CPU only.
        parameters: Parameters to set where the section does not.

    Raises:
        InputInvalid: The section asks for batching that the model cannot have.
    """
    message = serving_config(serving)
    if batched and not message.WhichOneof("scheduling_choice"):
        message.dynamic_batching.SetInParent()
    if not batched and message.HasField("dynamic_batching"):
        raise InputInvalid(
            "serving-unfit",
            "serving: asks for dynamic_batching, and the model is served without a batch dimension",
            evidence(["max_batch_size is 0, or an answer depends on the other rows or has no batch axis"]),
            "leave dynamic_batching out",
        )
    if not message.instance_group and cpu_only:
        group = message.instance_group.add()
        group.count, group.kind = 1, type(group).KIND_CPU
    for key, value in parameters.items():
        if key not in message.parameters:
            message.parameters[key].string_value = value
    return message


def render_config(
    name: str,
    backend: str,
    signature: Signature,
    serving: Any,
    max_batch_size: int,
    warmup: Warmup,
    labels: Mapping[str, str] | None = None,
) -> str:
    """The text of config.pbtxt, under a header by which :func:`is_ours` knows it again.

    Args:
        name: Model name.
        backend: Triton's backend.
        signature: The graph's tensors.
        serving: The completed section, as a ModelConfig message.
        max_batch_size: 0 without a batch dimension.
        warmup: Warm-up entries.
        labels: Label file by output.

    Raises:
        RepobuildError: The rendered text is not a configuration, or not that of this graph: our bug.
    """
    rest = model_config()
    rest.CopyFrom(serving)
    rest.ClearField("max_batch_size")
    context = ConfigContext(
        name=name,
        backend=backend,
        max_batch_size=max_batch_size,
        inputs=tuple(_tensor(s, signature.batched) for s in signature.inputs),
        outputs=tuple(
            _tensor(s, signature.batched, (labels or {}).get(s.name, "")) for s in signature.outputs
        ),
        serving=format_config(rest),
        warmup=warmup.samples,
    )
    text = sealed(render(TEMPLATE, {f: getattr(context, f) for f in ConfigContext.__slots__}))
    message = parse_config(text, CONFIG_FILE)
    wrong = [
        *config_mistakes(message, signature),
        *_lost(message, rest),
        *_lost_labels(message, labels or {}),
        *warmup_mistakes(message, warmup.files),
    ]
    if message.name != name or message.backend != backend:
        wrong.append(f"name '{message.name}' and backend '{message.backend}'")
    if wrong:
        raise ConfigWrong(
            "config-wrong",
            "the configuration that was rendered does not describe the model",
            evidence(wrong),
            "this is a fault of repobuild or of a template; please report it with the recipe",
        )
    return text


class ConfigWrong(RepobuildError):
    """Raised when a rendered configuration does not say what it was rendered from."""

    exit_code = EXIT_BUG


def config_mistakes(message: Any, signature: Signature) -> Iterator[str]:
    """Where a configuration and a graph disagree, by the rules of Triton's ONNX Runtime backend.

    Names and types must be equal, a batch axis must be free, input dims may be narrower than a free axis of
    the graph, output dims must be equal.

    Args:
        message: A ModelConfig message.
        signature: The graph's tensors.
    """
    batched = message.max_batch_size > 0
    for what, specs, items in (
        ("input", signature.inputs, message.input),
        ("output", signature.outputs, message.output),
    ):
        known = {s.name: s for s in specs}
        named = {i.name for i in items}
        yield from (
            f"{what} '{n}' of the graph is missing" for n in known if n not in named and what == "input"
        )
        for item in items:
            spec = known.get(item.name)
            if spec is None:
                yield f"the graph has no {what} '{item.name}'; it has {', '.join(known)}"
                continue
            if _type_name(item) != spec.dtype.config:
                yield f"{what} '{item.name}' is {_type_name(item)}, the graph has {spec.dtype.config}"
            if batched and spec.shape[:1] != (None,):
                yield f"{what} '{item.name}' has no free batch axis in the graph"
                continue
            want = spec.dims(batched=batched)
            have = tuple(item.dims)
            free = what == "input"
            if len(want) != len(have) or any(
                h != w and not (free and w == -1) for h, w in zip(have, want, strict=True)
            ):
                yield f"{what} '{item.name}' has dims {list(have)}, the graph has {list(want)}"


def order_mistakes(message: Any, signature: Signature) -> Iterator[str]:
    """Where Triton's PyTorch backend would take a tensor of a configuration for another one.

    It finds outputs by the number in ``<name>__<number>``, and else by their order in the configuration;
    inputs likewise, unless they are called as the arguments of forward, which only identifiers can be.

    Args:
        message: A ModelConfig message.
        signature: The artifact's tensors, in the artifact's order.
    """
    for what, specs, items in (
        ("input", signature.inputs, message.input),
        ("output", signature.outputs, message.output),
    ):
        have, want = [i.name for i in items], [s.name for s in specs]
        found = all(position(n) is not None for n in want)
        if what == "input":
            found = found or all(n.isidentifier() and n.isascii() for n in want)
        if not found and have != want[: len(have)]:
            yield f"{what}s are {', '.join(have)}, and must stand in the order {', '.join(want)}"


def warmup_mistakes(message: Any, files: Mapping[str, bytes]) -> Iterator[str]:
    """Where warm-up entries break Triton's rules.

    Args:
        message: A ModelConfig message.
        files: Content of the files under ``warmup/``.
    """
    import numpy as np

    inputs = {i.name: i for i in message.input}
    for sample in message.model_warmup:
        for name in inputs.keys() - sample.inputs.keys():
            yield f"warm-up '{sample.name}' lacks input '{name}'"
        for name, item in sample.inputs.items():
            data = files.get(item.input_data_file)
            if data is None:
                yield f"warm-up '{sample.name}' names a file '{item.input_data_file}' that is not there"
                continue
            if any(d < 1 for d in item.dims):
                yield f"warm-up '{sample.name}' has dims {list(item.dims)}, all must be at least 1"
            kind = next(d for d in DType if d.config == _type_name(item))
            size = 0 if kind is DType.BYTES else int(np.prod(item.dims)) * np.dtype(kind.numpy).itemsize
            if size and len(data) != size:
                yield f"warm-up file '{item.input_data_file}' has {len(data)} bytes, its dims give {size}"
            if name not in inputs or inputs[name].data_type != item.data_type:
                yield f"warm-up '{sample.name}' gives input '{name}' a type that the model has not"


def text_digest(text: str) -> str:
    """sha256 of a text's UTF-8 bytes, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_ours(text: str) -> bool:
    """Whether repobuild wrote a config.pbtxt and nobody has edited it since; its header tells."""
    header, _, rest = text.partition("\n")
    return header == f"{HEADER}{text_digest(rest)}"


def sealed(text: str) -> str:
    """A configuration under the header by which :func:`is_ours` knows it again."""
    return f"{HEADER}{text_digest(text)}\n{text}"


def same_interface(one: Any, other: Any) -> list[str]:
    """How the inputs and outputs of two configurations differ, empty when clients cannot tell them apart."""
    differences: list[str] = []
    for what in ("input", "output"):
        left, right = (
            {t.name: (_type_name(t), tuple(t.dims)) for t in getattr(message, what)}
            for message in (one, other)
        )
        differences.extend(
            f"{what} '{name}': {_described(left.get(name))} -> {_described(right.get(name))}"
            for name in sorted(left.keys() | right.keys())
            if left.get(name) != right.get(name)
        )
    if (one.max_batch_size > 0) != (other.max_batch_size > 0):
        differences.append(f"max_batch_size: {one.max_batch_size} -> {other.max_batch_size}")
    return differences


def read_config(folder: Path) -> tuple[str, Any] | None:
    """Text and message of a model folder's config.pbtxt, ``None`` when it has none.

    Raises:
        InputInvalid: It does not parse.
    """
    file = folder / CONFIG_FILE
    if not file.is_file():
        return None
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as problem:
        raise InputInvalid(
            "config-unreadable",
            "config.pbtxt is not UTF-8 text",
            (Evidence(str(problem), file=str(file)),),
            "save it as UTF-8",
        ) from None
    return text, parse_config(text, file)


def _lost(message: Any, rest: Any) -> Iterator[str]:
    """Fields that the recipe set and the rendered text has lost or changed."""
    for field, value in rest.ListFields():
        if getattr(message, field.name) != value:
            yield f"field '{field.name}' came out differently than the recipe has it"


def _lost_labels(message: Any, labels: Mapping[str, str]) -> Iterator[str]:
    for output in message.output:
        if output.label_filename != labels.get(output.name, ""):
            yield f"output '{output.name}' has label file '{output.label_filename}'"


def _tensor(spec: TensorSpec, batched: bool, label_filename: str = "") -> ConfigTensor:
    return ConfigTensor(spec.name, spec.dtype.config, spec.dims(batched=batched), label_filename)


def _type_name(item: Any) -> str:
    name: str = item.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[item.data_type].name
    return name


def _described(tensor: tuple[str, tuple[int, ...]] | None) -> str:
    return "absent" if tensor is None else f"{tensor[0]} {list(tensor[1])}"
