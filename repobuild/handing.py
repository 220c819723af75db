"""Python objects handed over by a caller, as files that a build reads: estimators, rows and labels."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repobuild.artifact import file_digest
from repobuild.errors import ConversionFailed, EnvironmentLacking, InputInvalid, evidence
from repobuild.sources.containers import open_stream
from repobuild.sources.pickle_scan import scan_pickle

MODEL_FILE = "estimator.joblib"


def write_estimator(estimator: Any, folder: Path) -> dict[str, Any]:
    """Write a fitted estimator where its child process can load it.

    joblib writes it; where it holds a class or function of ``__main__`` or of a function, which no other
    process can import, cloudpickle writes it with its code.

    Args:
        estimator: The estimator.
        folder: Existing private folder.

    Returns:
        The ``source:`` section for the file, pinned by its sha256.

    Raises:
        EnvironmentLacking: joblib is not installed, or cloudpickle is needed and is not.
        ConversionFailed: The estimator cannot be pickled.
    """
    try:
        import joblib
    except ImportError as problem:
        raise EnvironmentLacking(
            "sklearn-missing",
            "joblib is not installed",
            evidence([str(problem)]),
            "pip install 'repobuild[sklearn]'",
        ) from problem
    file = folder / MODEL_FILE
    try:
        joblib.dump(estimator, file)
        with file.open("rb") as stream:
            local = [n for n in scan_pickle(open_stream(stream)).imports if n.startswith("__main__.")]
    except (pickle.PicklingError, AttributeError, TypeError) as problem:
        local = [str(problem)]
    if local:
        _write_with_code(estimator, file, local)
    return {"path": str(file), "kind": "joblib", "sha256": file_digest(file)}


def write_table(value: Any, stem: Path, key: str) -> str:
    """Write rows or labels in a format in which their types survive.

    Args:
        value: An array, a DataFrame or Series, a list, a mapping of names to arrays, or the path of a file.
        stem: Path of the file without its ending.
        key: The recipe's key, for errors.

    Returns:
        Path of the file, absolute.

    Raises:
        InputInvalid: ``samples-unfit``: it is none of these, or holds Python objects.
    """
    if isinstance(value, str | os.PathLike):
        return str(Path(value).absolute())
    if hasattr(value, "to_frame") and not hasattr(value, "to_parquet"):
        value = value.to_numpy() if value.dtype.kind in "biufUS" else value.to_frame(str(value.name or key))
    if hasattr(value, "to_parquet"):
        return _parquet(value, stem.with_suffix(".parquet"), key)
    if isinstance(value, Mapping):
        return _npz(value, stem.with_suffix(".npz"), key)
    import numpy as np

    file = stem.with_suffix(".npy")
    np.save(file, _array(value, key), allow_pickle=False)
    return str(file)


def _write_with_code(estimator: Any, file: Path, local: list[str]) -> None:
    hint = "define its classes and functions in a module that can be imported, or pip install cloudpickle"
    try:
        import cloudpickle
    except ImportError as problem:
        raise EnvironmentLacking(
            "cloudpickle-missing",
            "the estimator holds classes or functions that no other process can import",
            evidence([*local[:8], str(problem)]),
            hint,
        ) from problem
    try:
        with file.open("wb") as stream:
            cloudpickle.dump(estimator, stream)
    except (pickle.PicklingError, AttributeError, TypeError) as problem:
        raise ConversionFailed(
            "estimator-unpicklable",
            "the estimator cannot be handed to the child process that exports it",
            evidence([f"{type(problem).__name__}: {problem}"]),
            "take what cannot be pickled out of it, such as locks, open files and connections",
        ) from problem


def _parquet(frame: Any, file: Path, key: str) -> str:
    try:
        frame.to_parquet(file, index=False)
    except ImportError as problem:
        raise EnvironmentLacking(
            "sklearn-missing",
            "pyarrow, which writes a DataFrame with its types, is not installed",
            evidence([str(problem)]),
            "pip install 'repobuild[sklearn]'",
        ) from problem
    except (ValueError, TypeError) as problem:
        raise _unfit(key, f"{type(problem).__name__}: {str(problem).splitlines()[0]}") from problem
    return str(file)


def _npz(arrays: Mapping[Any, Any], file: Path, key: str) -> str:
    import numpy as np

    wrong = [name for name in arrays if not isinstance(name, str) or not name or name == "file"]
    if wrong or not arrays:
        raise _unfit(key, f"names must be text other than 'file', got {wrong or 'none'}")
    np.savez(file, **{name: _array(a, key) for name, a in arrays.items()})
    return str(file)


def _array(value: Any, key: str) -> Any:
    import numpy as np

    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as problem:
        raise _unfit(key, str(problem)) from problem
    if array.dtype.kind == "O" and array.size and all(isinstance(v, str) for v in array.ravel()):
        array = array.astype(np.str_)
    if array.dtype.kind not in "biufUS" or array.ndim == 0:
        raise _unfit(key, f"{type(value).__name__} of type {array.dtype} with {array.ndim} axes")
    return array


def _unfit(key: str, why: str) -> InputInvalid:
    return InputInvalid(
        "samples-unfit",
        f"the {key} cannot be written with their types",
        evidence([why]),
        "give an array of numbers or text, a DataFrame, a list of rows, or a mapping of names to arrays",
    )
