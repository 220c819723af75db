"""Answers the parent's questions about models that take named tensors: PyTorch and ONNX."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repobuild.worker.arrays import load_batch, writing
from repobuild.worker.many import load_many, save_many
from repobuild.worker.tensor_model import Declined, ScriptableModel, TensorModel

OPENERS: Mapping[str, str] = {
    "torch": "repobuild.worker.torch_loading:open_module",
    "torchscript": "repobuild.worker.torch_loading:open_script",
    "pt2": "repobuild.worker.torch_loading:open_program",
    "onnx": "repobuild.worker.onnx_model:open_onnx",
}
"""What opens each kind of file, as ``module:function``; frameworks are imported only when asked for."""


class TensorDesk:
    """Holds the loaded model between questions."""

    def __init__(self) -> None:
        self._held: TensorModel | None = None

    def open_tensors(self, kind: str, **parameters: Any) -> dict[str, Any]:
        """Load the model and describe it."""
        module, _, function = OPENERS[kind].partition(":")
        self._held = getattr(importlib.import_module(module), function)(**parameters)
        return self._model().description()

    def ask(self, requests: str, to: str) -> dict[str, Any]:
        """The model's answers to each of many requests, or why it refuses."""
        found: list[Any] = []
        errors: list[str | None] = []
        for request in load_many(Path(requests)):
            assert request is not None
            try:
                found.append(self._model().ask(request))
                errors.append(None)
            except Declined as problem:
                found.append(None)
                errors.append(str(problem))
        with writing("the model's answers"):
            save_many(Path(to), found)
        return {"errors": errors}

    def observed(self) -> dict[str, Any]:
        """Notes on what the calls so far showed."""
        return {"notes": self._model().observed()}

    def export_tensors(
        self, opset: int | None, to: str, example: str, free: dict[str, dict[str, str]]
    ) -> dict[str, Any]:
        """Write the model as ONNX."""
        axes = {name: {int(a): label for a, label in found.items()} for name, found in free.items()}
        return self._model().export(opset, Path(to), load_batch(Path(example)), axes)

    def make_script(
        self, way: str, to: str, example: str, plan: dict[str, Any], freeze: bool
    ) -> dict[str, Any]:
        """Write the model as TorchScript; see :func:`repobuild.worker.script_maker.make_script`."""
        from repobuild.worker.script_maker import Wiring, make_script

        model = self._model()
        assert isinstance(model, ScriptableModel)
        return make_script(
            model.scriptable(),
            way,
            Wiring.read(plan),
            load_batch(Path(example)),
            Path(to),
            Path(model.given).name,
            freeze=freeze,
        )

    def script_ways(self) -> dict[str, Any]:
        """How the model can be made TorchScript; nothing where it cannot."""
        model = self._model()
        return {"ways": list(model.scriptable().ways) if isinstance(model, ScriptableModel) else []}

    def _model(self) -> TensorModel:
        assert self._held is not None
        return self._held
