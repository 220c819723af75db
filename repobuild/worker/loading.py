"""Loads a vouched-for model file inside the child process; the only code that unpickles."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import lzma
import pickle
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import EnvironmentLacking, Evidence, InputInvalid, RepobuildError, evidence

PACKAGES = ("joblib", "sklearn", "skl2onnx")


def load_estimator(kind: str, path: Path, given: str, allowed: Sequence[str] = ()) -> tuple[Any, list[str]]:
    """Load a vouched-for file. This runs the code that the file names.

    Args:
        kind: Kind of the file, a key of ``LOADERS``.
        path: The private copy.
        given: The path as the recipe has it, for messages.
        allowed: Types that a skops file may be loaded with, though skops does not know them.

    Returns:
        The estimator, and the warnings that loading it gave.

    Raises:
        InputInvalid: The file is damaged, cannot be loaded here, or holds no estimator.
        EnvironmentLacking: scikit-learn, skl2onnx, or a package or class that the file needs is not
            installed here.
    """
    require_packages(given, (*PACKAGES, *FURTHER_PACKAGES.get(kind, ())))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator = LOADERS[kind](path, allowed)
    except MemoryError:
        raise
    except Exception as problem:
        named = _load_error(problem, given)
        if named is None:
            raise
        raise named from None
    return estimator, sorted({_note(w.message) for w in caught})


def _joblib(path: Path, _: Sequence[str]) -> Any:
    import joblib

    return joblib.load(path)


def _pickle(path: Path, _: Sequence[str]) -> Any:
    with path.open("rb") as stream:
        return pickle.load(stream)  # noqa: S301 - vouched for, and inside the child


def _skops(path: Path, allowed: Sequence[str]) -> Any:
    import skops.io

    return skops.io.load(path, trusted=list(allowed))


LOADERS: Mapping[str, Callable[[Path, Sequence[str]], Any]] = {
    "joblib": _joblib,
    "pickle": _pickle,
    "cloudpickle": _pickle,
    "skops": _skops,
}
"""How each kind of file is loaded."""

FURTHER_PACKAGES: Mapping[str, tuple[str, ...]] = {"skops": ("skops",)}


def require_packages(given: str, packages: Sequence[str] = PACKAGES) -> None:
    """Import the packages that a file needs before it is loaded.

    Raises:
        EnvironmentLacking: One is missing, or cannot be imported.
    """
    missing = [n for n in packages if importlib.util.find_spec(n) is None]
    if missing:
        raise EnvironmentLacking(
            "sklearn-missing",
            f"{given} needs packages that are not installed here",
            evidence([f"not installed: {', '.join(missing)}"]),
            "pip install 'repobuild[sklearn]', with the scikit-learn that the model was trained with",
        )
    try:
        for name in packages:
            importlib.import_module(name)
    except (ImportError, OSError) as problem:
        raise EnvironmentLacking(
            "worker-start-failed",
            f"the packages that load {given} are installed, but cannot be imported",
            evidence([f"{type(problem).__name__}: {first_line(problem)}"]),
            "nothing of the model had run yet; see whether Python imports them outside repobuild, and ulimit",
        ) from problem


def _load_error(problem: Exception, given: str) -> RepobuildError | None:
    """What an exception of ``joblib.load`` means, or ``None`` for one that only code of the model raises."""
    seen = Evidence(f"{type(problem).__name__}: {problem}", file=given)
    if isinstance(problem, ModuleNotFoundError):
        has = _has_package(problem.name)
        return EnvironmentLacking(
            "module-missing",
            f"{given} needs the module '{problem.name}', which is not installed here",
            (Evidence(str(problem), file=given), *evidence(_installed() if has else ())),
            f"{'its package is here, but in another version; ' if has else ''}install the package that the"
            " model was trained with, in the version it was trained with",
        )
    if isinstance(problem, AttributeError):
        return EnvironmentLacking(
            "class-missing",
            f"{given} needs something that the installed packages do not have",
            (Evidence(str(problem), file=given), *evidence(_installed())),
            "the model was saved with another version of its package, or with a class from a script;"
            " convert it where it was trained",
        )
    if _is_damage(problem):
        return InputInvalid(
            "model-damaged",
            f"{given} cannot be read: it is damaged or incomplete",
            (seen,),
            "save the model again, or fetch the file again",
        )
    if isinstance(problem, ImportError | ValueError | LookupError | TypeError | pickle.UnpicklingError):
        return InputInvalid(
            "model-unloadable",
            f"{given} cannot be loaded with the packages that are installed here",
            (seen, *evidence(_installed())),
            "usually it was saved with another version of its package, or the file is damaged; convert it"
            " with the versions it was trained with, or save it again",
        )
    return None


def _has_package(module: str | None) -> bool:
    """Whether the package around a module that was not found is installed."""
    package, dot, _ = (module or "").partition(".")
    return bool(dot) and importlib.util.find_spec(package) is not None


def _is_damage(problem: Exception) -> bool:
    """Whether only a file that lost or changed bytes raises this."""
    if isinstance(problem, EOFError | zlib.error | lzma.LZMAError | gzip.BadGzipFile):
        return True
    text = str(problem)
    if isinstance(problem, pickle.UnpicklingError):
        return "truncated" in text or "invalid load key" in text
    if isinstance(problem, ValueError):
        return text.startswith("EOF: reading")
    return isinstance(problem, OSError) and text == "Invalid data stream"


def _note(warning: object) -> str:
    """A warning in one line, without the pointer to a web page that scikit-learn adds."""
    return " ".join(str(warning).partition("For more info please refer to")[0].split())[:500]


def first_line(problem: object) -> str:
    """The first line of an exception's text, or its type where it has none."""
    lines = str(problem).strip().splitlines()
    return lines[0][:500] if lines else type(problem).__name__


def tool_versions() -> dict[str, str]:
    """Versions of the packages that a conversion rests on."""
    import joblib
    import numpy as np
    import onnx
    import skl2onnx
    import sklearn

    modules = {"scikit-learn": sklearn, "skl2onnx": skl2onnx, "onnx": onnx, "joblib": joblib, "numpy": np}
    return {name: module.__version__ for name, module in modules.items()}


def _installed() -> list[str]:
    return [f"installed here: {name} {version}" for name, version in tool_versions().items()]
