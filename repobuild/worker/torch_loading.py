"""Opens PyTorch models in the child process: a module with its weights, TorchScript, an exported program."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from repobuild.errors import EnvironmentLacking, Evidence, InputInvalid, evidence
from repobuild.worker.loading import first_line
from repobuild.worker.tensor_model import TensorModel
from repobuild.worker.torch_signature import Given
from repobuild.worker.torch_weights import fit_weights, read_weights

SEED = 0
"""Seeds what a module draws when it is made, so that two builds make the same one."""

ENTRY = "repobuild_user_module"


def open_module(
    path: str | None,
    given: str,
    module: dict[str, Any],
    options: dict[str, Any],
    layout: dict[str, Any] | None,
    whole: bool = False,
) -> TensorModel:
    """Make a module and load its weights.

    Args:
        path: Private copy of the weights; ``None`` where the class or factory brings its own.
        given: The path as the recipe has it.
        module: ``file`` or ``name``, ``class`` and ``kwargs`` of the recipe; empty for a pickled module.
        options: The recipe's ``export:`` section.
        layout: The samples' names, types and shapes.
        whole: Whether the file is a pickled module, that somebody vouched for.

    Raises:
        InputInvalid: The weights do not fit, or what was made is no module.
        EnvironmentLacking: A package is missing.
    """
    torch = import_torch(given)
    from repobuild.worker.torch_model import TorchModel

    torch.manual_seed(SEED)
    notes: list[str] = []
    if whole:
        assert path is not None
        with _made(given, "loading it"):
            made = torch.load(path, map_location="cpu", weights_only=False)
        if not isinstance(made, torch.nn.Module):
            raise _no_module(given, made)
    else:
        factory = _attribute(module, given)
        with _made(given, f"calling {module['class']}"):
            made = factory(**module.get("kwargs", {}))
        if not isinstance(made, torch.nn.Module):
            raise _no_module(f"{module['class']} of {_where(module)}", made)
        if path is not None:
            notes.extend(fit_weights(made, read_weights(Path(path), given), given))
    was_training = made.training
    made.eval()
    if was_training and _differs_in_training(made):
        notes.append("the module was put into eval mode, since dropout and batch norm differ while training")
    return TorchModel(made, given, Given(layout, options), notes)


def open_script(path: str, given: str, options: dict[str, Any], layout: dict[str, Any] | None) -> TensorModel:
    """Load a TorchScript archive.

    Raises:
        InputInvalid: It cannot be loaded.
        EnvironmentLacking: PyTorch is not installed.
    """
    torch = import_torch(given)
    from repobuild.worker.torchscript_model import ScriptModel

    torch.manual_seed(SEED)
    with _made(given, "loading it"):
        script = torch.jit.load(path, map_location="cpu")
    notes = []
    if script.training:
        script.eval()
        notes.append("the TorchScript archive was saved in training mode; it was put into eval mode")
    return ScriptModel(script, given, Given(layout, options), notes)


def open_program(
    path: str, given: str, options: dict[str, Any], layout: dict[str, Any] | None
) -> TensorModel:
    """Load an exported program (``.pt2``).

    Raises:
        InputInvalid: It cannot be loaded.
        EnvironmentLacking: PyTorch is not installed.
    """
    torch = import_torch(given)
    from repobuild.worker.program_model import ProgramModel

    with _made(given, "loading it"):
        program = torch.export.load(path)
    return ProgramModel(program, given, Given(layout, options))


def import_torch(given: str) -> Any:
    """PyTorch itself.

    Raises:
        EnvironmentLacking: It is missing, or cannot be imported.
    """
    missing = [n for n in ("torch", "onnxscript") if importlib.util.find_spec(n) is None]
    if missing:
        raise EnvironmentLacking(
            "torch-missing",
            f"{given} needs packages that are not installed here",
            evidence([f"not installed: {', '.join(missing)}"]),
            "pip install 'repobuild[torch]', with the PyTorch that the model was trained with",
        )
    try:
        import torch
    except (ImportError, OSError) as problem:
        raise EnvironmentLacking(
            "worker-start-failed",
            f"the packages that load {given} are installed, but cannot be imported",
            evidence([f"{type(problem).__name__}: {first_line(problem)}"]),
            "nothing of the model had run yet; see whether Python imports them outside repobuild, and ulimit",
        ) from problem
    return torch


def torch_versions() -> dict[str, str]:
    """Versions of the packages that a conversion rests on."""
    from importlib.metadata import version

    names = ("torch", "onnxscript", "onnx", "numpy")
    return {name: version(name) for name in names}


def _attribute(module: Mapping[str, Any], given: str) -> Any:
    """The class or factory that the recipe names."""
    where, name = _where(module), module["class"]
    try:
        namespace = (
            _import_file(Path(module["file"]))
            if module.get("file")
            else importlib.import_module(module["name"])
        )
    except ModuleNotFoundError as problem:
        raise EnvironmentLacking(
            "module-missing",
            f"{where} needs the module '{problem.name}', which is not installed here",
            (Evidence(str(problem), file=where),),
            "install it, or put it beside the file",
        ) from None
    except FileNotFoundError:
        raise InputInvalid(
            "module-file-missing",
            f"there is no Python file {where}",
            (Evidence("no such file", key="source.module.file"),),
            "the path is relative to the recipe",
        ) from None
    except Exception as problem:
        raise InputInvalid(
            "module-unusable",
            f"importing {where} fails",
            evidence([f"{type(problem).__name__}: {first_line(problem)}", *_user_line(problem)]),
            "see whether Python imports it by itself",
        ) from problem
    found = namespace
    for part in name.split("."):
        if not hasattr(found, part):
            has = [n for n, v in vars(namespace).items() if callable(v) and not n.startswith("_")]
            raise InputInvalid(
                "module-class-missing",
                f"{where} has no '{name}'",
                (Evidence(f"it has {', '.join(has[:12]) or 'nothing to call'}", key="source.module.class"),),
                "name a class, or a function that returns a module",
            )
        found = getattr(found, part)
    return found


def _import_file(file: Path) -> Any:
    """Import a file under a name of its own; modules beside it can be imported by it."""
    if not file.is_file():
        raise FileNotFoundError(file)
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(ENTRY, file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[ENTRY] = made
    sys.modules.setdefault(file.stem, made)
    spec.loader.exec_module(made)
    return made


def _where(module: Mapping[str, Any]) -> str:
    return Path(module["file"]).name if module.get("file") else str(module["name"])


@contextlib.contextmanager
def _made(given: str, doing: str) -> Iterator[None]:
    """Turn what a library or a user's class raises into an error that names the file."""
    try:
        yield
    except (MemoryError, EnvironmentLacking, InputInvalid):
        raise
    except Exception as problem:
        if isinstance(problem, ModuleNotFoundError):
            raise EnvironmentLacking(
                "module-missing",
                f"{given} needs the module '{problem.name}', which is not installed here",
                (Evidence(str(problem), file=given),),
                "install the package that the model was made with",
            ) from None
        raise InputInvalid(
            "model-unloadable",
            f"{given} cannot be loaded: {doing} fails",
            evidence([f"{type(problem).__name__}: {first_line(problem)}", *_user_line(problem)]),
            "see whether the same works in Python by itself",
        ) from problem


def _user_line(problem: BaseException) -> list[str]:
    from repobuild.worker.torch_errors import user_frame

    frame = user_frame(problem)
    return [frame] if frame else []


def _no_module(what: str, made: Any) -> InputInvalid:
    return InputInvalid(
        "not-a-module",
        f"{what} gives no torch.nn.Module",
        evidence([f"it gives {type(made).__module__}.{type(made).__qualname__}"]),
        "name the class of the model, or a function that returns one",
    )


def _differs_in_training(module: Any) -> bool:
    import torch

    kinds = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._BatchNorm)  # noqa: SLF001
    return any(isinstance(m, kinds) for m in module.modules())
