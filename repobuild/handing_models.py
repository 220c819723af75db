"""Models of PyTorch and ONNX handed over by a caller, as files that a build reads; none is changed."""

from __future__ import annotations

import contextlib
import pickle
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from repobuild.artifact import file_digest
from repobuild.errors import ConversionFailed, EnvironmentLacking, evidence

MODULE_FILE = "module.pt"
SCRIPT_FILE = "script.pt"
PROGRAM_FILE = "program.pt2"
ONNX_FILE = "model.onnx"
LARGEST_MESSAGE = (1 << 31) - (1 << 20)
"""Bytes that a protobuf message may have, less room for the rest of the graph."""


def write_model(model: Any, folder: Path) -> dict[str, Any] | None:
    """Write a model of PyTorch or ONNX where its child process can load it.

    Args:
        model: An ``nn.Module``, a ``ScriptModule``, an ``ExportedProgram`` or a ``ModelProto``.
        folder: Existing private folder.

    Returns:
        The ``source:`` section for the file, pinned by its sha256; ``None`` for an object of another kind.

    Raises:
        EnvironmentLacking: cloudpickle is needed, and is not installed.
        ConversionFailed: The model cannot be written.
    """
    found = _writer(model)
    if found is None:
        return None
    name, kind, write = found
    file = folder / name
    try:
        write(model, file)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError, NotImplementedError) as problem:
        raise ConversionFailed(
            "estimator-unpicklable",
            "the model cannot be handed to the child process that exports it",
            evidence([f"{type(problem).__name__}: {problem}"]),
            "take what cannot be pickled out of it, such as locks, open files and connections; or save it"
            " with torch.export.save, and hand over the path",
        ) from problem
    return {"path": str(file), "kind": kind, "sha256": file_digest(file)}


def model_name(model: Any) -> str | None:
    """What a model of PyTorch or ONNX is called; ``None`` for an object of another kind."""
    found = _writer(model)
    if found is None:
        return None
    if found[0] == ONNX_FILE and model.graph.name:
        return str(model.graph.name)
    if found[0] == SCRIPT_FILE:
        return str(model.original_name)
    return type(_unwrapped(model)).__name__


def _writer(model: Any) -> tuple[str, str, Callable[[Any, Path], None]] | None:
    """File name, kind and writer; packages that nobody imported cannot have made the model."""
    torch, onnx = sys.modules.get("torch"), sys.modules.get("onnx")
    if torch is not None and isinstance(model, torch.jit.ScriptModule):
        return SCRIPT_FILE, "torchscript", _write_script
    if torch is not None and isinstance(model, torch.nn.Module):
        return MODULE_FILE, "torch", _write_module
    if torch is not None and isinstance(model, torch.export.ExportedProgram):
        return PROGRAM_FILE, "pt2", _write_program
    if onnx is not None and isinstance(model, onnx.ModelProto):
        return ONNX_FILE, "onnx", _write_onnx
    return None


def _unwrapped(module: Any) -> Any:
    """The module behind what torch.compile and data-parallel training put around it."""
    import torch

    while True:
        if isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
            module = module.module
        elif "_orig_mod" in getattr(module, "_modules", {}):
            module = module._orig_mod  # noqa: SLF001 - what torch.compile calls it in every state_dict
        else:
            return module


def _write_module(module: Any, file: Path) -> None:
    import torch

    try:
        import cloudpickle
    except ImportError as problem:
        raise EnvironmentLacking(
            "cloudpickle-missing",
            "a module is handed over with its code, and cloudpickle, which writes that, is not installed",
            evidence([str(problem)]),
            "pip install cloudpickle, or name the module's file and class in a recipe",
        ) from problem
    with _by_value(cloudpickle):
        torch.save(_unwrapped(module), file, pickle_module=cloudpickle)


def _write_script(script: Any, file: Path) -> None:
    script.save(str(file))


def _write_program(program: Any, file: Path) -> None:
    import torch

    torch.export.save(program, file)


def _write_onnx(model: Any, file: Path) -> None:
    import onnx

    if model.ByteSize() <= LARGEST_MESSAGE:
        onnx.save(model, str(file))
        return
    copy = onnx.ModelProto()
    copy.CopyFrom(model)  # onnx moves the tensors of what it saves out of it
    onnx.save(copy, str(file), save_as_external_data=True, location=f"{file.name}.data")


@contextlib.contextmanager
def _by_value(cloudpickle: Any) -> Iterator[None]:
    """Let cloudpickle write the code of every imported module that is not installed.

    The child process could not import those, or would read them from files that have changed since.
    """
    already = set(cloudpickle.list_registry_pickle_by_value())
    chosen = [m for name, m in list(sys.modules.items()) if name not in already and _is_the_users(name, m)]
    for module in chosen:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in chosen:
            cloudpickle.unregister_pickle_by_value(module)


def _is_the_users(name: str, module: Any) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or name in ("__main__", "__mp_main__") or name.startswith("repobuild"):
        return False
    if getattr(module, "__name__", None) != name:
        return False
    path = Path(file).resolve()
    return path.suffix == ".py" and not any(path.is_relative_to(place) for place in _installed())


def _installed() -> tuple[Path, ...]:
    """Folders of installed packages and of Python itself."""
    keys = ("stdlib", "platstdlib", "purelib", "platlib")
    places = {Path(sysconfig.get_path(key)).resolve() for key in keys}
    return (*places, *(Path(p).resolve() for p in sys.path if "site-packages" in p or "dist-packages" in p))
