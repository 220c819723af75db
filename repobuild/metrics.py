"""Task metrics on the samples' true targets: the model's and the artifact's, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from repobuild.errors import Evidence, InputInvalid
from repobuild.outputs import Wanted
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.report import Check, Fail, Pass
from repobuild.samples.read import read_table
from repobuild.tensors import Array, Batch


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the model and of the artifact.

    Attributes:
        name: ``accuracy``, ``auc`` or ``rmse``.
        output: The output that it was computed from.
        model: The model's own.
        artifact: The artifact's.
    """

    name: str
    output: str
    model: float
    artifact: float

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {"name": self.name, "output": self.output, "model": self.model, "artifact": self.artifact}


def read_labels(recipe: Recipe, count: int) -> Array | None:
    """The true target of every sample row; ``None`` when the recipe names none.

    Args:
        recipe: The recipe.
        count: Number of sample rows.

    Raises:
        InputInvalid: The file is not one column of as many rows.
        EnvironmentLacking: It cannot be read.
    """
    if recipe.labels is None:
        if recipe.budget.accuracy_drop is not None:
            raise InputInvalid(
                "budget-unfit",
                "budget: accuracy_drop needs labels, and the recipe names none",
                (recipe_evidence(recipe, ("budget", "accuracy_drop"), "labels: is missing"),),
                "name a file with the samples' true targets under labels:",
            )
        return None
    table = read_table(recipe.labels, recipe.labels_given)
    columns = table.columns
    shape = list(columns[0].values.shape)
    if len(columns) != 1 or columns[0].values.size != len(columns[0].values) or shape[0] != count:
        raise InputInvalid(
            "labels-mismatch",
            f"{recipe.labels_given} is not one target for each of the {count} samples",
            (
                Evidence(f"it holds {len(columns)} column{'s' if len(columns) > 1 else ''} of shape {shape}"),
                recipe_evidence(recipe, ("labels",), recipe.labels_given),
            ),
            "save one column, in the order of the samples",
        )
    return columns[0].values.reshape(-1)


def measure(
    recipe: Recipe, wanted: Sequence[Wanted], classes: Any, truth: Array, model: Batch, artifact: Batch
) -> tuple[Metric, ...]:
    """The metrics that the outputs allow: accuracy of labels, AUC of two classes' probabilities, RMSE.

    The class of a model that answers with scores, and knows no names of classes, is the largest score.

    The AUC is the Mann-Whitney statistic with ties counted half (Hanley and McNeil, Radiology 143, 1982).

    Args:
        recipe: The recipe, for messages.
        wanted: What the outputs are.
        classes: The model's classes, ``None`` without.
        truth: ``[rows]`` true targets.
        model: The model's answers by output.
        artifact: The artifact's.

    Raises:
        InputInvalid: No output can be compared with the targets.
    """
    found = tuple(_metrics(wanted, classes, truth, model, artifact))
    if not found:
        raise InputInvalid(
            "labels-mismatch",
            "labels: are given, and no output of the model can be compared with them",
            (recipe_evidence(recipe, ("labels",), f"outputs: {', '.join(w.name for w in wanted)}"),),
            "leave labels out, or serve the label, the two-class probabilities or the prediction",
        )
    return found


def budget_checks(recipe: Recipe, metrics: Sequence[Metric], artifact_bytes: int) -> Iterator[Check]:
    """What the recipe's budget allows and what was used."""
    budget = recipe.budget
    if budget.accuracy_drop is not None:
        accuracy = next((m for m in metrics if m.name == "accuracy"), None)
        if accuracy is None:
            raise InputInvalid(
                "budget-unfit",
                "budget: accuracy_drop needs an output with the class label",
                (recipe_evidence(recipe, ("budget", "accuracy_drop"), "no output holds the label"),),
                "serve the label, or leave accuracy_drop out",
            )
        drop = accuracy.model - accuracy.artifact
        detail = (
            f"accuracy {accuracy.artifact:.6g}, the model's is {accuracy.model:.6g}: a drop of {drop:.6g},"
            f" the budget is {budget.accuracy_drop:g}"
        )
        kept = drop <= budget.accuracy_drop
        yield Check("budget: accuracy_drop", Pass(detail) if kept else Fail(detail), hint=_HINT)
    if budget.file_mb is not None:
        size = artifact_bytes / 1e6
        detail = f"the artifact has {size:.3f} MB, the budget is {budget.file_mb:g} MB"
        yield Check("budget: file_mb", Pass(detail) if size <= budget.file_mb else Fail(detail), hint=_HINT)


_HINT = "raise the budget if that is acceptable"


def _metrics(
    wanted: Sequence[Wanted], classes: Any, truth: Array, model: Batch, artifact: Batch
) -> Iterator[Metric]:
    for output in wanted:
        sides = (model[output.name], artifact[output.name])
        answer = output.selection.answer
        width = sides[0].reshape(len(sides[0]), -1).shape[1]
        if output.is_label and width == 1:
            want = truth
            if output.index_of is not None:
                want = _indices(truth, output.index_of)
            yield Metric("accuracy", output.name, *(_accuracy(want, s.reshape(-1)) for s in sides))
        elif answer == "probabilities" and isinstance(classes, list) and len(classes) == 2:
            positive = _text(truth) == str(classes[1])
            if positive.any() and not positive.all() and width in (1, 2) and _holds_second(output, width):
                scores = [s.reshape(len(s), -1)[:, -1] for s in sides]
                yield Metric("auc", output.name, *(_auc(positive, s) for s in scores))
        elif classes is None and sides[0].ndim == 2 and width > 1 and _are_classes(truth, width):
            yield Metric("accuracy", output.name, *(_accuracy(truth, s.argmax(axis=1)) for s in sides))
        elif (answer == "prediction" or classes is None) and width == 1 and truth.dtype.kind in "fiub":
            yield Metric("rmse", output.name, *(_rmse(truth, s.reshape(-1)) for s in sides))


def _are_classes(truth: Array, width: int) -> bool:
    """Whether the targets are numbers of columns, so that the largest value of a row is its class."""
    return truth.dtype.kind in "iu" and bool(truth.size) and truth.min() >= 0 and truth.max() < width


def _holds_second(output: Wanted, width: int) -> bool:
    """Whether the last column is that of the second class."""
    if width == 2:
        return True
    part = output.selection.index[1] if len(output.selection.index) > 1 else None
    return part in (1, -1) or (isinstance(part, slice) and part.start in (1, -1))


def _indices(truth: Array, classes: Sequence[Any]) -> Array:
    import numpy as np

    position = {str(c): i for i, c in enumerate(classes)}
    return np.array([position.get(t, -1) for t in _text(truth).tolist()])


def _text(values: Array) -> Array:
    """Values as text that compares across types: 1, 1.0 and '1' are one label."""
    import numpy as np

    if values.dtype.kind == "f" and np.array_equal(values, np.rint(values)):
        values = values.astype(np.int64)
    return values.astype(np.str_)


def _accuracy(truth: Array, labels: Array) -> float:
    return float((_text(truth) == _text(labels)).mean())


def _rmse(truth: Array, values: Array) -> float:
    import numpy as np

    return float(np.sqrt(np.mean((truth.astype(np.float64) - values.astype(np.float64)) ** 2)))


def _auc(positive: Array, scores: Array) -> float:
    import numpy as np

    values, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - (counts - 1) / 2)[inverse]
    n_pos = int(positive.sum())
    n_neg = len(positive) - n_pos
    del values
    return float((ranks[positive].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg))
