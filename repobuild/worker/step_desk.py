"""Answers the parent's questions about python steps of ensembles; their functions run only here."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from repobuild.errors import Evidence, InputInvalid, evidence
from repobuild.tensors import Array, DType
from repobuild.worker.arrays import writing
from repobuild.worker.many import load_many, save_many

MODULE = "repobuild_step"


class Unfit(Exception):
    """Raised for an answer that is not what the recipe declares."""


class StepDesk:
    """Holds the loaded function between questions."""

    def __init__(self) -> None:
        self._call: Callable[[dict[str, Array]], Any] = lambda _: None
        self._file = Path()
        self._outputs: list[dict[str, Any]] = []
        self._texts: frozenset[str] = frozenset()
        self._batched = False

    def open_step(
        self,
        folder: str,
        file: str,
        function: str,
        parameters: dict[str, Any],
        inputs: list[dict[str, Any]],
        outputs: list[dict[str, Any]],
        batched: bool,
    ) -> dict[str, Any]:
        """Import the file and find its function.

        Args:
            folder: Folder with the file and those beside it.
            file: Name of the file.
            function: Name of the function.
            parameters: Its second argument, for a function that takes two.
            inputs: ``name``, ``dtype`` and ``dims`` of each.
            outputs: Likewise.
            batched: Whether axis 0 of every array holds the rows.

        Raises:
            InputInvalid: The file does not import, or has no such function.
        """
        self._file = Path(folder) / file
        self._outputs = outputs
        self._texts = frozenset(t["name"] for t in inputs if t["dtype"] == DType.BYTES.value)
        self._batched = batched
        sys.dont_write_bytecode = True
        sys.path.append(folder)
        found = _function(self._file, function)
        takes_parameters = _takes_two(found, file)
        if takes_parameters:
            self._call = lambda given: found(given, json.loads(json.dumps(parameters)))
        else:
            self._call = found
        if parameters and not takes_parameters:
            raise InputInvalid(
                "step-function",
                f"{file} has parameters, and its function {function} takes none",
                evidence([f"it takes {inspect.signature(found)}"]),
                f"write def {function}(inputs, parameters)",
            )
        return {"takes_parameters": takes_parameters}

    def ask_step(self, requests: str, to: str) -> dict[str, Any]:
        """The function's answers to many requests, or why it has none, with the place in the file."""
        found: list[dict[str, Array] | None] = []
        errors: list[dict[str, str] | None] = []
        for request in load_many(Path(requests)):
            assert request is not None
            try:
                found.append(self._answer(request))
                errors.append(None)
            except Unfit as problem:
                found.append(None)
                errors.append({"kind": "unfit", "text": str(problem)})
            except Exception as problem:  # noqa: BLE001 - code of a user raises anything
                found.append(None)
                errors.append({"kind": "raised", "text": _told(problem, self._file)})
        with writing("the step's answers"):
            save_many(Path(to), found)
        return {"errors": errors}

    def _answer(self, request: Mapping[str, Array]) -> dict[str, Array]:
        given = {n: _as_bytes(a) if n in self._texts else a.copy() for n, a in request.items()}
        rows = len(next(iter(request.values()))) if self._batched else None
        answer = self._call(given)
        names = [t["name"] for t in self._outputs]
        if not isinstance(answer, dict):
            raise Unfit(f"the function answers with {type(answer).__name__}, not a dictionary of arrays")
        if set(answer) != set(names):
            raise Unfit(f"the function answers with {', '.join(map(str, answer))}, not {', '.join(names)}")
        return {t["name"]: _fitting(answer[t["name"]], t, rows) for t in self._outputs}


def _function(file: Path, name: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(MODULE, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise InputInvalid(
            "step-import",
            f"{file.name} does not import",
            (Evidence(_told(problem, file), file=file.name),),
            "name what it needs under requirements:, and files beside it under files:",
        ) from problem
    function = getattr(module, name, None)
    if not callable(function):
        there = [n for n, v in vars(module).items() if inspect.isfunction(v) and not n.startswith("_")]
        raise InputInvalid(
            "step-function",
            f"{file.name} has no function {name}",
            (Evidence(f"it has {', '.join(there) or 'none'}", file=file.name),),
            f"write def {name}(inputs): it gets a dictionary of arrays and gives one",
        )
    return function  # type: ignore[no-any-return]


def _takes_two(function: Callable[..., Any], file: str) -> bool:
    """Whether a function takes the parameters beside the inputs."""
    try:
        signature = inspect.signature(function)
        for count in (2, 1):
            try:
                signature.bind(*[None] * count)
            except TypeError:
                continue
            return count == 2
    except ValueError:
        return False
    raise InputInvalid(
        "step-function",
        f"the function of {file} takes other arguments than a step has",
        evidence([f"it takes {signature}"]),
        "write def run(inputs) or def run(inputs, parameters)",
    )


def _as_bytes(array: Array) -> Array:
    """Text as Triton hands it over: an object array of bytes."""
    import numpy as np

    texts = np.empty(array.size, dtype=np.object_)
    texts[:] = [str(v).encode() for v in array.ravel()]
    return texts.reshape(array.shape)


def _fitting(value: Any, tensor: Mapping[str, Any], rows: int | None) -> Array:
    """The array if it is what the recipe declares; text as unicode.

    Raises:
        Unfit: It has another type or shape.
    """
    import numpy as np

    array, name, dtype = np.asarray(value), tensor["name"], DType(tensor["dtype"])
    want = list(tensor["dims"]) if rows is None else [rows, *tensor["dims"]]
    if len(want) != array.ndim or any(w not in (-1, h) for w, h in zip(want, array.shape, strict=True)):
        raise Unfit(f"output '{name}' has shape {list(array.shape)}, the recipe declares {want}")
    if dtype is not DType.BYTES:
        if array.dtype.name != dtype.numpy:
            raise Unfit(f"output '{name}' is {array.dtype}, the recipe declares {dtype.value}")
        return np.array(array)
    if array.dtype.kind not in "OSU":
        raise Unfit(f"output '{name}' is {array.dtype}, the recipe declares BYTES")
    return np.array([_text(v, name) for v in array.ravel().tolist()], dtype=np.str_).reshape(array.shape)


def _text(value: Any, name: str) -> str:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            raise Unfit(f"output '{name}' holds bytes that are no UTF-8 text; declare it UINT8") from None
    if not isinstance(value, str):
        raise Unfit(f"output '{name}' holds {type(value).__name__}, the recipe declares BYTES")
    if value.endswith("\0"):
        raise Unfit(f"output '{name}' holds text that ends in a zero character; declare it UINT8")
    return value


def _told(problem: BaseException, file: Path) -> str:
    """What was raised and the line of the user's file where."""
    text = "".join(traceback.format_exception_only(problem)).strip().splitlines()[-1]
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if Path(f.filename).name == file.name]
    return f"{text} ({file.name}:{frames[-1].lineno})" if frames else text
