"""Finding the model's class, and calling its methods."""

from __future__ import annotations

import asyncio
import importlib.machinery
import importlib.util
import inspect
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, Dict, List, Optional

from repobuild_serve.python_child.failures import BackendError, told

API_FOLDER = str(Path(__file__).resolve().parent / "backend")


def model_class(path: str, version_folder: str) -> Any:
    """Import a model file and find its class.

    Args:
        path: The file, ``<model>/<version>/<name>.py``.
        version_folder: Name of the version's folder.

    Raises:
        BackendError: It is no python file.
        AttributeError: It has no ``TritonPythonModel``.
        Exception: Whatever the file raises.
    """
    file = Path(path)
    if file.suffix != ".py":
        raise BackendError(f"Model name must end with '.py'. Model name is \"{file.name}\".")
    sys.path += [str(file.parent), str(file.parent.parent), API_FOLDER]
    name = f"{version_folder}.{file.stem}"
    if version_folder not in sys.modules:
        _import_package(version_folder, file.parent)
    __import__(name)
    module = sys.modules[name]
    try:
        return module.TritonPythonModel
    except AttributeError as exc:
        # Without frames: no line of the model did this.
        raise BackendError(f"AttributeError: {exc}") from None


def _import_package(name: str, folder: Path) -> None:
    """Make a folder the package called so.

    Whatever else is called ``1`` on ``sys.path``, where the working folder comes first, would be it else.
    """
    start = folder / "__init__.py"
    places = [str(folder)]
    if start.is_file():
        spec = importlib.util.spec_from_file_location(name, start, submodule_search_locations=places)
    else:
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = places
    assert spec is not None
    sys.modules[name] = package = importlib.util.module_from_spec(spec)
    if start.is_file():
        assert spec.loader is not None
        spec.loader.exec_module(package)


class EventLoop:
    """The event loop for coroutines of the model, on a thread of its own from the first one on."""

    def __init__(self) -> None:
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def submit(self, coroutine: Any) -> Any:
        """Start a coroutine; its future, of ``concurrent.futures``."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="asyncio", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Stop the loop."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)


class Model:
    """An initialized model.

    Args:
        instance: The object of the model's class.
        path: The model file, as it is named in errors.

    Attributes:
        has_check: Whether it has an ``is_ready``, once initialized.
    """

    def __init__(self, instance: Any, path: str) -> None:
        self._instance = instance
        self._path = path
        self._loop = EventLoop()
        self.has_check = hasattr(instance, "is_ready")

    def execute(self, requests: List[Any], *, decoupled: bool) -> Any:
        """Run ``execute``; what it returns, or its future where a decoupled model's is a coroutine.

        Raises:
            BackendError: The model has no such method.
            BaseException: Whatever the model raises.
        """
        if not hasattr(self._instance, "execute"):
            raise BackendError(f"Python model {self._path} does not implement `execute` method.")
        returned = self._instance.execute(requests)
        # Unlike asyncio's own test, this one does not take a generator for a coroutine.
        if not inspect.iscoroutine(returned):
            return returned
        future = self._loop.submit(returned)
        return future if decoupled else future.result()

    def check_ready(self) -> Dict[str, Any]:
        """Run ``is_ready``."""
        try:
            result = self._instance.is_ready()
            if inspect.iscoroutine(result):
                result = self._loop.submit(result).result()
            if not isinstance(result, bool):
                return {"ready": False, "error": "is_ready() must return a boolean value"}
        except BaseException as exc:  # noqa: BLE001 - whatever the model raises is its answer
            return {"ready": False, "error": told(exc)}
        return {"ready": result}

    def finalize(self) -> None:
        """Run ``finalize``, if there is one; what it raises is printed."""
        self._loop.close()
        if hasattr(self._instance, "finalize"):
            try:
                self._instance.finalize()
            except BaseException:  # noqa: BLE001 - the process ends in any case
                traceback.print_exc()
