"""Answers the parent's questions about models that take rows of a table: scikit-learn's estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repobuild.tensors import Batch, DType
from repobuild.worker.arrays import load_batch, save_batch, writing
from repobuild.worker.loading import load_estimator
from repobuild.worker.sklearn_export import register_converters
from repobuild.worker.sklearn_model import SklearnModel
from repobuild.worker.skops_schema import read_skops


class RowsDesk:
    """Holds the loaded estimator between questions."""

    def __init__(self) -> None:
        self._model: SklearnModel | None = None
        self._allowed: tuple[str, ...] = ()

    def read_skops(self, path: str, given: str) -> dict[str, Any]:
        """Types in a skops file that skops does not know, and its versions; none of its code is run."""
        return read_skops(Path(path), given)

    def allow_types(self, types: list[str]) -> dict[str, Any]:
        """Types that the next skops file may be loaded with, though skops does not know them."""
        self._allowed = tuple(types)
        return {}

    def load(
        self,
        path: str,
        given: str,
        inputs: list[dict[str, Any]],
        kind: str = "joblib",
        method: str | None = None,
        layout: dict[str, Any] | None = None,
        custom_ops: list[str] | None = None,
    ) -> dict[str, Any]:
        """Load the model and describe it."""
        estimator, notes = load_estimator(kind, Path(path), given, self._allowed)
        register_converters(custom_ops or ())
        self._model = SklearnModel(estimator, given, inputs, notes, method, layout)
        return self._model.description()

    def export(self, opset: int, to: str, floats: str = "FP32") -> dict[str, Any]:
        """Write the model as ONNX."""
        return {"answers": self._loaded().export(opset, Path(to), DType(floats))}

    def predict(
        self, batch: str, to: str, one_by_one: bool, answers: list[str] | None = None
    ) -> dict[str, Any]:
        """The model's answers to all rows."""
        found = self._loaded().predict(load_batch(Path(batch)), one_by_one=one_by_one, answers=answers)
        return _saved(found, to)

    def predict_each(self, batch: str, to: str, answers: list[str] | None = None) -> dict[str, Any]:
        """The model's answers to rows that it may refuse."""
        found, errors = self._loaded().predict_each(load_batch(Path(batch)), answers)
        return {"errors": errors, **_saved(found, to)}

    def jumps(self, batch: str, to: str, single: list[str]) -> dict[str, Any]:
        """Rows close to where the model's answer jumps."""
        return _saved(self._loaded().jumps(load_batch(Path(batch)), single), to)

    def made_up(self, count: int, to: str) -> dict[str, Any]:
        """Rows in the range of what the model was trained on."""
        return _saved(self._loaded().made_up(count), to)

    def _loaded(self) -> SklearnModel:
        assert self._model is not None
        return self._model


def _saved(found: Batch, to: str) -> dict[str, Any]:
    with writing("the model's answers"):
        save_batch(Path(to), found)
    return {}
