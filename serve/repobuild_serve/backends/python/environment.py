"""The interpreter that runs a model: the server's own, or that of EXECUTION_ENV_PATH."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tarfile
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from repobuild_serve.errors import Code, LoadError

_LOG = logging.getLogger(__name__)
_PARAMETER = "EXECUTION_ENV_PATH"
_MODEL_FOLDER = "$$TRITON_MODEL_DIRECTORY"
_LOCK = threading.Lock()
_UNPACKED: dict[tuple[str, int], Path] = {}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A python program and the environment that it is to be run in."""

    program: str
    environment: Mapping[str, str]


def interpreter(parameters: Mapping[str, str], folder: Path) -> Interpreter:
    """What runs a model.

    Args:
        parameters: Its backend parameters.
        folder: The model's folder.

    Raises:
        LoadError: The environment that the model names is not there or has no python.
    """
    given = parameters.get(_PARAMETER, "")
    if not given:
        return Interpreter(sys.executable, {**os.environ})
    root = _root(Path(given.replace(_MODEL_FOLDER, str(folder))))
    program = next(
        (path for name in ("python3", "python") if os.access(path := root / "bin" / name, os.X_OK)), None
    )
    if program is None:
        raise LoadError(f"the execution environment {root} has no bin/python3", Code.INTERNAL)
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
    environment["PATH"] = f"{root / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
    libraries = environment.get("LD_LIBRARY_PATH")
    environment["LD_LIBRARY_PATH"] = f"{root / 'lib'}" + (f"{os.pathsep}{libraries}" if libraries else "")
    return Interpreter(str(program), environment)


def _root(path: Path) -> Path:
    try:
        found = path.resolve(strict=True)
    except OSError as exc:
        raise LoadError(f"Failed to get the canonical path for {path}.", Code.INTERNAL) from exc
    if found.is_dir():
        return found
    with _LOCK:
        key = str(found), found.stat().st_mtime_ns
        if key not in _UNPACKED:
            _UNPACKED[key] = _unpacked(found)
        return _UNPACKED[key]


def _unpacked(archive: Path) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="repobuild_python_env_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _LOG.info("unpacking the execution environment %s", archive)
    try:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="tar")
    except (tarfile.TarError, OSError, EOFError) as exc:
        raise LoadError(
            f"the execution environment {archive} cannot be unpacked: {exc}", Code.INTERNAL
        ) from exc
    return folder
