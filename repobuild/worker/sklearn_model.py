"""A scikit-learn estimator inside the child process: what it answers with, its ONNX form, its predictions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import ConversionFailed, Evidence, InputInvalid, evidence
from repobuild.tensors import Array, Batch, DType
from repobuild.worker.arrays import writing
from repobuild.worker.estimators import AnswerKind, answers_of, class_name, dense, final_step, width_of
from repobuild.worker.loading import first_line, tool_versions

ML_OPSET = 3
DEFAULT_INPUT = "X"


class SklearnModel:
    """A fitted estimator that takes one matrix.

    Args:
        estimator: The estimator.
        inputs: The recipe's inputs: ``name``, ``dtype`` or ``None``, ``dims`` or ``None``.
        notes: What was noticed while loading.

    Raises:
        InputInvalid: It is not a fitted estimator, or the recipe's inputs do not fit it.
    """

    def __init__(
        self,
        estimator: Any,
        given: str,
        inputs: Sequence[Mapping[str, Any]],
        notes: list[str],
        method: str | None = None,
        layout: Mapping[str, Any] | None = None,
    ) -> None:
        self._estimator = estimator
        self._notes = notes
        self._answers = answers_of(estimator, given)
        self._width = width_of(estimator, given)
        self._input, self._dtype = self._matrix_input(inputs)

    def description(self) -> dict[str, Any]:
        """What :meth:`repobuild.sources.pickled.PickledSource.describe` reads."""
        estimator = self._estimator
        facts: dict[str, Any] = {
            "answers": {a.name: a.method for a in self._answers},
            "labels": [a.name for a in self._answers if a.label],
            "features": self._width,
            "notes": self._notes,
        }
        if hasattr(estimator, "classes_"):
            facts["classes"] = _json_values(estimator.classes_)
        if hasattr(estimator, "feature_names_in_"):
            facts["feature_names"] = [str(n) for n in estimator.feature_names_in_]
        return {
            "model": class_name(estimator),
            "facts": facts,
            "inputs": [{"name": self._input, "dtype": self._dtype.value, "dims": [self._width]}],
            "tools": tool_versions(),
        }

    def export(self, opset: int, to: Path) -> dict[str, str]:
        """Write ONNX and say which graph output, or part of one, holds each answer.

        Args:
            opset: Opset of the default domain.
            to: File to write.

        Returns:
            ``{answer: selection over a graph output}``.

        Raises:
            ConversionFailed: skl2onnx has no converter, or failed.
        """
        from skl2onnx.common.exceptions import MissingConverter, MissingShapeCalculator

        try:
            model = self._convert(opset)
        except (MissingConverter, MissingShapeCalculator) as problem:
            raise ConversionFailed(
                "no-converter",
                f"skl2onnx has no converter for a step of {class_name(self._estimator)}",
                evidence([first_line(problem)]),
                "replace the step by one that skl2onnx converts",
            ) from problem
        except Exception as problem:
            raise ConversionFailed(
                "export-failed",
                f"skl2onnx could not convert {class_name(self._estimator)}",
                evidence([f"{type(problem).__name__}: {first_line(problem)}"]),
                "the evidence is skl2onnx's own message; a smaller pipeline tells which step it means",
            ) from problem
        outputs = [o.name for o in model.graph.output]
        if len(outputs) < len(self._answers):
            raise ConversionFailed(
                "export-incomplete",
                f"the ONNX graph has {len(outputs)} outputs, the model answers with {len(self._answers)}",
                evidence(
                    [f"graph: {', '.join(outputs)}", f"model: {', '.join(a.name for a in self._answers)}"]
                ),
                "name the outputs to serve under outputs: in the recipe",
            )
        content = model.SerializeToString(deterministic=True)
        with writing("the ONNX file"):
            to.write_bytes(content)
        return {a.name: self._selection(a, o) for a, o in zip(self._answers, outputs, strict=False)}

    def predict(
        self, batch: Batch, *, one_by_one: bool, answers: Collection[str] | None = None
    ) -> dict[str, Array]:
        """The answers for every row, rows on axis 0.

        Estimators with ``n_jobs`` run as one job, so that none starts processes, and sums over their parts
        have one order.

        Args:
            batch: ``{input name: matrix [rows, features]}``.
            one_by_one: Call the estimator once a row.
            answers: Names of the answers to compute; all where it is ``None``.

        Raises:
            InputInvalid: The estimator refuses the rows.
        """
        import joblib
        import numpy as np

        matrix = batch[self._input]
        pieces = [matrix[i : i + 1] for i in range(len(matrix))] if one_by_one else [matrix]
        found: dict[str, Array] = {}
        for answer in self._answers:
            if answers is not None and answer.name not in answers:
                continue
            method: Callable[[Array], Any] = getattr(self._estimator, answer.method)
            try:
                with warnings.catch_warnings(), joblib.parallel_config(backend="sequential"):
                    warnings.simplefilter("ignore")
                    parts = [dense(method(piece), answer) for piece in pieces]
            except (ValueError, TypeError) as problem:
                raise InputInvalid(
                    "samples-refused",
                    f"the model's own {answer.method} refuses the samples",
                    evidence([f"{type(problem).__name__}: {first_line(problem)}"]),
                    "the samples must be rows as the model was trained on",
                ) from problem
            found[answer.name] = np.concatenate(parts)
        return found

    def _matrix_input(self, inputs: Sequence[Mapping[str, Any]]) -> tuple[str, DType]:
        if len(inputs) > 1:
            raise InputInvalid(
                "inputs-mismatch",
                f"the recipe names {len(inputs)} inputs, the model takes one matrix of {self._width} columns",
                evidence([f"recipe: {', '.join(i['name'] for i in inputs)}"]),
                "name one input, or none for the default 'X'",
            )
        if not inputs:
            return DEFAULT_INPUT, DType.FP32
        only = inputs[0]
        if only["dims"] is not None and list(only["dims"]) != [self._width]:
            raise InputInvalid(
                "inputs-mismatch",
                f"the recipe gives input '{only['name']}' dims {list(only['dims'])}, the model takes"
                f" {self._width} columns",
                (Evidence(f"n_features_in_ is {self._width}", key="inputs[0].dims"),),
                f"write dims: [{self._width}], or leave dims out",
            )
        return only["name"], DType(only["dtype"] or "FP32")

    def _convert(self, opset: int) -> Any:
        from skl2onnx import convert_sklearn
        from skl2onnx.common import data_types

        kind = {
            DType.FP32: data_types.FloatTensorType,
            DType.FP64: data_types.DoubleTensorType,
            DType.INT64: data_types.Int64TensorType,
            DType.INT32: data_types.Int32TensorType,
            DType.BOOL: data_types.BooleanTensorType,
            DType.BYTES: data_types.StringTensorType,
        }[self._dtype]
        final = final_step(self._estimator)
        raw = {id(final): {"raw_scores": True}} if self._wants_raw_scores() else None
        for options in (raw, None):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return convert_sklearn(
                        self._estimator,
                        name="model",
                        initial_types=[(self._input, kind([None, self._width]))],
                        options=options,
                        target_opset={"": opset, "ai.onnx.ml": ML_OPSET},
                    )
            except NameError as problem:
                if options is None or "raw_scores" not in str(problem):
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _wants_raw_scores(self) -> bool:
        return any(a.method == "decision_function" for a in self._answers) and hasattr(
            self._estimator, "classes_"
        )

    def _selection(self, answer: AnswerKind, output: str) -> str:
        """Two-class scores are a column of their own in scikit-learn, and two columns in the graph."""
        if answer.method == "decision_function" and len(getattr(self._estimator, "classes_", ())) == 2:
            return f"{output}[:, 1:2]"
        return output


def _json_values(values: Any) -> Any:
    """Class labels as JSON; an estimator of several targets has one array a target."""
    plain = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(plain, list):
        return [_json_values(v) for v in plain]
    return plain if isinstance(plain, bool | int | float | str) else str(plain)
