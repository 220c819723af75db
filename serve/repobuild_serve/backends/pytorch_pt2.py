"""PT2 archives: exported programs, and programs that AOTInductor has compiled."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repobuild_serve.backends.parameters import Placement, shape_text
from repobuild_serve.backends.pytorch_names import leaf_paths, path_positions
from repobuild_serve.backends.pytorch_tensors import torch_type, type_name
from repobuild_serve.config.settings import ModelSettings, TensorConfig
from repobuild_serve.errors import Code, LoadError

Call = Callable[[list[Any]], list[Any]]


def load_exported(torch: Any, name: str, path: Path) -> Any:
    """The exported program of an archive that holds no pickles.

    Raises:
        LoadError: PyTorch cannot read it.
    """
    try:
        with path.open("rb") as stream:
            return torch.export.load(stream)
    except Exception as exc:
        raise _failed(name, exc) from exc


def exported_call(torch: Any, settings: ModelSettings, program: Any, device: Any) -> Call:
    """What runs a fresh module of the program: inputs in config order to outputs in config order.

    Raises:
        LoadError: The program's inputs or outputs do not fit the config.
    """
    from torch.export.passes import move_to_device_pass
    from torch.utils import _pytree as pytree

    if device is not None:
        program = move_to_device_pass(program, device)
    signature, specification = program.graph_signature, program.call_spec
    aliases = list(signature.user_inputs)
    places, wanted = _positions(
        settings,
        pytree.treespec_dumps(specification.in_spec),
        pytree.treespec_dumps(specification.out_spec),
        aliases,
    )
    nodes = {node.name: node.meta.get("val") for node in program.graph.nodes}
    for item, place in zip(settings.inputs, places, strict=True):
        _check_tensor(torch, settings, item, "input", nodes.get(aliases[place]))
    for item, place in zip(settings.outputs, wanted, strict=True):
        _check_tensor(torch, settings, item, "output", nodes.get(signature.user_outputs[place]))
    module = program.module()

    def call(values: list[Any]) -> list[Any]:
        args, kwargs = pytree.tree_unflatten(_ordered(values, places), specification.in_spec)
        flat = pytree.tree_leaves(module(*args, **kwargs))
        return [flat[place] for place in wanted]

    return call


def load_compiled(torch: Any, name: str, path: Path, place: Placement) -> Any:
    """The AOTInductor package of an archive.

    Raises:
        LoadError: PyTorch cannot read it.
    """
    # Compiled code trusts its inputs unless this is set: a wrong batch would be read beyond its end.
    os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
    try:
        return torch._inductor.aoti_load_package(  # noqa: SLF001 - the name under which PyTorch documents it
            str(path), device_index=place.device if place.on_gpu else -1
        )
    except Exception as exc:
        raise _failed(name, exc) from exc


def compiled_call(settings: ModelSettings, package: Any) -> Call:
    """What runs the package: inputs in config order to outputs in config order.

    Raises:
        LoadError: The names of the config are not the package's.
    """
    takes, gives = package.loader.get_call_spec()
    places, wanted = _positions(settings, takes, gives, [])

    def call(values: list[Any]) -> list[Any]:
        flat = package.loader.run(_ordered(values, places))
        return [flat[place] for place in wanted]

    return call


def _positions(
    settings: ModelSettings, takes: str, gives: str, aliases: list[str]
) -> tuple[list[int], list[int]]:
    try:
        inputs, outputs = leaf_paths(takes, ("ARGS", "KWARGS")), leaf_paths(gives, ("RESULT",))
    except ValueError as exc:
        raise _failed(settings.name, exc) from exc
    names, results = [item.name for item in settings.inputs], [item.name for item in settings.outputs]
    return (
        path_positions(settings.name, "input", names, inputs, aliases),
        path_positions(settings.name, "output", results, outputs),
    )


def _ordered(values: list[Any], places: list[int]) -> list[Any]:
    ordered: list[Any] = [None] * len(values)
    for place, value in zip(places, values, strict=True):
        ordered[place] = value
    return ordered


def _check_tensor(torch: Any, settings: ModelSettings, item: TensorConfig, role: str, found: Any) -> None:
    name = settings.name
    if not isinstance(found, torch.Tensor):
        raise LoadError(f"unable to load model '{name}', {role} '{item.name}' is no tensor in the model")
    if found.dtype != torch_type(torch, item):
        raise LoadError(
            f"unable to load model '{name}', configuration expects datatype {item.datatype.config} for "
            f"{role} "
            f"'{item.name}', model provides {type_name(found.dtype)}"
        )
    has = [dim if isinstance(dim, int) else -1 for dim in found.shape]
    wants = [*([-1] if settings.batched else []), *item.model_dims]
    narrow = role == "input"
    fits = len(has) == len(wants) and all(
        model in (-1, config) or (not narrow and config == -1)
        for model, config in zip(has, wants, strict=True)
    )
    if settings.max_batch_size == 1 and not fits and has[:1] == [1]:
        fits = len(has) == len(wants) and all(
            model in (-1, config) for model, config in zip(has[1:], wants[1:], strict=True)
        )
    if not fits:
        batch = ", the batch first" if settings.batched else ""
        raise LoadError(
            f"unable to load model '{name}', {role} '{item.name}' has shape {shape_text(has)} in the "
            "exported "
            f"program but {shape_text(wants)} in the model configuration{batch}; export it with "
            "dynamic_shapes "
            "for the dims that vary"
        )


def _failed(name: str, error: Exception) -> LoadError:
    return LoadError(f"failed to load model '{name}': {error}", Code.INTERNAL)
