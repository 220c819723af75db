"""Answers the parent's questions about a TorchScript file as Triton's PyTorch backend would run it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import ConversionFailed, evidence
from repobuild.torch_names import position
from repobuild.worker.arrays import writing
from repobuild.worker.loading import first_line
from repobuild.worker.many import load_many, save_many


class ScriptDesk:
    """Holds the loaded script between questions."""

    def __init__(self) -> None:
        self._script: Any = None
        self._inputs: list[int] = []
        self._names: list[str] = []
        self._outputs: list[int] = []

    def close_script(self) -> dict[str, Any]:
        """Give back the memory of the loaded script, if there is one."""
        self._script = None
        return {}

    def open_script_file(self, path: str, inputs: list[str], outputs: list[str]) -> dict[str, Any]:
        """Load a script, and find its arguments and answers by the names in the configuration.

        The rules are those of ``ModelInstanceState::GetNamingConvention`` in
        https://github.com/triton-inference-server/pytorch_backend, src/pt/model_instance_state.cc.

        Raises:
            ConversionFailed: PyTorch does not load it, or its arguments are not as many as the inputs.
        """
        import torch

        try:
            with _no_deprecation():
                self._script = torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]
        except RuntimeError as problem:
            raise ConversionFailed(
                "runtime-refuses",
                "PyTorch refuses to load the TorchScript that was made",
                evidence([first_line(problem)]),
                "an operator named above is not known to this PyTorch",
            ) from problem
        arguments = [a.name for a in self._script.forward.schema.arguments[1:]]
        if len(arguments) != len(inputs):
            raise ConversionFailed(
                "runtime-refuses",
                f"the TorchScript takes {len(arguments)} arguments, and there are {len(inputs)} inputs",
                evidence([f"forward takes {', '.join(arguments)}"]),
                "this is a fault of repobuild; please report it with the recipe",
            )
        self._names = inputs
        self._inputs = positions(inputs, arguments)
        self._outputs = positions(outputs, ())
        return {"arguments": arguments}

    def ask_script(self, requests: str, to: str) -> dict[str, Any]:
        """The script's answers to each request, in the order of the outputs, or why it refuses."""
        found: list[Any] = []
        errors: list[str | None] = []
        for request in load_many(Path(requests)):
            assert request is not None
            try:
                found.append(self._run(request))
                errors.append(None)
            except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as problem:
                found.append(None)
                errors.append(f"{type(problem).__name__}: {_last_line(problem)}")
        with writing("the answers of the TorchScript"):
            save_many(Path(to), found)
        return {"errors": errors}

    def _run(self, request: Any) -> dict[str, Any]:
        import numpy as np
        import torch

        ordered: list[Any] = [None] * len(self._inputs)
        for place, name in zip(self._inputs, self._names, strict=True):
            ordered[place] = torch.from_numpy(np.array(request[name]))
        with torch.inference_mode():
            answer = self._script(*ordered)
        values = list(answer) if isinstance(answer, tuple) else [answer]
        return {str(i): values[place].cpu().contiguous().numpy() for i, place in enumerate(self._outputs)}


def positions(names: Sequence[str], arguments: Sequence[str]) -> list[int]:
    """Where each named tensor is: by forward's arguments, else by ``<name>__<index>``, else by its place."""
    if arguments and all(name in arguments for name in names):
        return [arguments.index(name) for name in names]
    found = [place for name in names if (place := position(name)) is not None]
    return found if len(found) == len(names) else list(range(len(names)))


def _last_line(problem: BaseException) -> str:
    """What TorchScript's interpreter was told; its own traceback comes first."""
    lines = [t.strip() for t in str(problem).splitlines() if t.strip()]
    told = next((t for t in lines if t.startswith("RuntimeError:")), None)
    return (told or (lines[0] if lines else type(problem).__name__))[:600]


@contextlib.contextmanager
def _no_deprecation() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
