"""A scikit-learn estimator inside the child process: what it answers with, its ONNX form, its predictions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import InputInvalid, evidence
from repobuild.tensors import Array, Batch, DType, rows, take
from repobuild.worker.arrays import writing
from repobuild.worker.columns import column_names, mixed_missing
from repobuild.worker.estimators import AnswerKind, answers_of, class_name, dense
from repobuild.worker.inputs import build, plan_feed
from repobuild.worker.jumps import REFUSALS, find_jumps
from repobuild.worker.loading import first_line, tool_versions
from repobuild.worker.making import make_rows
from repobuild.worker.sklearn_export import steps_of, to_onnx


class SklearnModel:
    """A fitted estimator.

    Args:
        estimator: The estimator.
        inputs: The recipe's inputs: ``name``, ``dtype`` or ``None``, ``dims`` or ``None``.
        notes: What was noticed while loading.
        method: The only method to answer with; ``None`` for what its kind of estimator answers with.
        layout: What the sample file holds, ``None`` without one.

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
        self._notes = [*notes, *mixed_missing(estimator)]
        self._answers = answers_of(estimator, given, method)
        self._feed = plan_feed(estimator, given, inputs, layout)

    def description(self) -> dict[str, Any]:
        """What :meth:`repobuild.sources.pickled.PickledSource.describe` reads."""
        estimator = self._estimator
        facts: dict[str, Any] = {
            "answers": {a.name: a.method for a in self._answers},
            "labels": [a.name for a in self._answers if a.label],
            "notes": self._notes,
            "steps": [f"{path} ({type(step).__name__})" for path, step in steps_of(estimator) if path],
        }
        if hasattr(estimator, "classes_"):
            facts["classes"] = _json_values(estimator.classes_)
        names = column_names(estimator)
        if names is not None:
            facts["feature_names"] = names
        return {
            "model": class_name(estimator),
            "facts": facts,
            "feed": self._feed.to_dict(),
            "tools": tool_versions(),
        }

    def export(self, opset: int, to: Path, floats: DType) -> dict[str, str]:
        """Write ONNX and say which graph output, or part of one, holds each answer.

        Args:
            opset: Opset of the default domain.
            to: File to write.
            floats: FP32 or FP64, for the inputs whose type is open.

        Returns:
            ``{answer: selection over a graph output}``; an answer that the graph lacks is left out.

        Raises:
            ConversionFailed: skl2onnx has no converter, or failed.
        """
        model, answers = to_onnx(self._estimator, self._feed, floats, opset, self._answers)
        content = model.SerializeToString(deterministic=True)
        with writing("the ONNX file"):
            to.write_bytes(content)
        return answers

    def predict(
        self, batch: Batch, *, one_by_one: bool, answers: Collection[str] | None = None
    ) -> dict[str, Array]:
        """The answers for every row, rows on axis 0.

        Estimators with ``n_jobs`` run as one job, so that none starts processes, and sums over their parts
        have one order.

        Args:
            batch: Arrays by name, see :func:`repobuild.worker.inputs.build`.
            one_by_one: Call the estimator once a row.
            answers: Names of the answers to compute; all where it is ``None``.

        Raises:
            InputInvalid: The estimator refuses the rows.
        """
        import numpy as np

        count = rows(batch)
        pieces = [take(batch, i, i + 1) for i in range(count)] if one_by_one else [batch]
        found: dict[str, Array] = {}
        for answer in self._wanted(answers):
            try:
                parts = [self._ask(answer, piece) for piece in pieces]
            except (ValueError, TypeError) as problem:
                raise InputInvalid(
                    "samples-refused",
                    f"the model's own {answer.method} refuses the samples",
                    evidence([f"{type(problem).__name__}: {first_line(problem)}"]),
                    "the samples must be rows as the model was trained on",
                ) from problem
            found[answer.name] = np.concatenate(parts)
        return found

    def predict_each(
        self, batch: Batch, answers: Collection[str] | None = None
    ) -> tuple[dict[str, Array], list[str | None]]:
        """The answers for every row that the model answers, each row asked alone.

        Returns:
            The answers of the rows without an error, in their order; and for every row the error, or
            ``None``.
        """
        import numpy as np

        wanted = self._wanted(answers)
        parts: dict[str, list[Array]] = {a.name: [] for a in wanted}
        errors: list[str | None] = []
        for index in range(rows(batch)):
            piece = take(batch, index, index + 1)
            try:
                row = {a.name: self._ask(a, piece) for a in wanted}
            except REFUSALS as problem:
                errors.append(f"{type(problem).__name__}: {first_line(problem)}")
                continue
            errors.append(None)
            for name, answer in row.items():
                parts[name].append(answer)
        return {name: np.concatenate(found) for name, found in parts.items() if found}, errors

    def jumps(self, batch: Batch, single: Collection[str]) -> dict[str, Array]:
        """Rows on both sides of jumps of the answer, see :func:`repobuild.worker.jumps.find_jumps`."""
        smooth = [a for a in self._answers if not a.label]
        if not smooth:
            return {}
        return find_jumps(lambda rows_: self._ask(smooth[-1], rows_), batch, frozenset(single))

    def made_up(self, count: int) -> dict[str, Array]:
        """Rows in the range of what the model was trained on, seeded, see :mod:`repobuild.worker.making`."""
        return make_rows(self._estimator, self._feed, count)

    def _wanted(self, names: Collection[str] | None) -> list[AnswerKind]:
        return [a for a in self._answers if names is None or a.name in names]

    def _ask(self, answer: AnswerKind, batch: Batch) -> Array:
        import joblib

        method: Callable[[Any], Any] = getattr(self._estimator, answer.method)
        with warnings.catch_warnings(), joblib.parallel_config(backend="sequential"):
            warnings.simplefilter("ignore")
            return dense(method(build(self._feed, batch)), answer)


def _json_values(values: Any) -> Any:
    """Class labels as JSON; an estimator of several targets has one array a target."""
    plain = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(plain, list):
        return [_json_values(v) for v in plain]
    return plain if isinstance(plain, bool | int | float | str) else str(plain)
