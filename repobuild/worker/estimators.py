"""What kinds of estimators there are: what each answers with, and how wide its rows are."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

from repobuild.errors import Evidence, InputInvalid, evidence
from repobuild.tensors import Array


@dataclass(frozen=True, slots=True)
class AnswerKind:
    """One thing an estimator answers with.

    Attributes:
        name: Name of the answer, and by default of the output.
        method: Estimator method that computes it.
        label: Whether it names a class, a cluster or an outlier, so that only an equal answer is right even
            where it is a float.
    """

    name: str
    method: str
    label: bool = False


METHODS = {
    "predict_proba": AnswerKind("probabilities", "predict_proba"),
    "decision_function": AnswerKind("decision_function", "decision_function"),
    "transform": AnswerKind("transformed", "transform"),
    "score_samples": AnswerKind("scores", "score_samples"),
}
"""Answers by method, for a recipe that names one; predict depends on the kind of estimator."""


def answers_of(estimator: Any, given: str, method: str | None = None) -> tuple[AnswerKind, ...]:
    """What an estimator answers with, by its kind and the methods it has.

    Args:
        estimator: The estimator.
        given: The file's path, for messages.
        method: The only method to answer with, ``None`` for the usual ones.

    Raises:
        InputInvalid: It is no estimator, one without an answer for new rows, or one without that method.
    """
    usual = _usual_answers(estimator, given)
    if method is None:
        return usual
    have = [m for m in ("predict", *METHODS) if hasattr(estimator, m)]
    for answer in usual:
        if answer.method == method:
            return (answer,)
    if method in METHODS and method in have:
        return (METHODS[method],)
    raise InputInvalid(
        "method-unknown",
        f"the {class_name(estimator)} in {given} has no method {method}",
        (Evidence(f"it has {', '.join(have)}", key="source.method"),),
        "leave source.method out, or name one of these",
    )


def _usual_answers(estimator: Any, given: str) -> tuple[AnswerKind, ...]:
    from sklearn.base import is_classifier, is_clusterer, is_outlier_detector

    if isinstance(estimator, type) or not any(hasattr(estimator, m) for m in ("fit", "predict", "transform")):
        inside = (
            f", with keys {', '.join(map(repr, list(estimator)[:8]))}" if isinstance(estimator, dict) else ""
        )
        raise InputInvalid(
            "not-an-estimator",
            f"{given} holds a {class_name(estimator)}, which can neither predict nor transform",
            (Evidence(f"it holds a {type(estimator).__name__}{inside}", file=given),),
            "save the fitted estimator or pipeline itself",
        )
    _refuse_unrefitted(estimator, given)
    if not hasattr(estimator, "predict"):
        if not hasattr(estimator, "transform"):
            raise _without_answer(estimator, given)
        return (AnswerKind("transformed", "transform"),)
    label = AnswerKind("label", "predict", label=True)
    if is_classifier(estimator):
        if hasattr(estimator, "predict_proba"):
            return (label, AnswerKind("probabilities", "predict_proba"))
        if hasattr(estimator, "decision_function"):
            return (label, AnswerKind("decision_function", "decision_function"))
        return (label,)
    if is_outlier_detector(estimator):
        return (label, AnswerKind("scores", "decision_function"))
    if is_clusterer(estimator):
        return (label, AnswerKind("distances", "transform")) if hasattr(estimator, "transform") else (label,)
    return (AnswerKind("prediction", "predict"),)


def width_of(estimator: Any, given: str) -> int:
    """How many columns a fitted estimator takes.

    Raises:
        InputInvalid: It was not fitted, or it takes text or something else that has no columns.
    """
    width = getattr(estimator, "n_features_in_", None)
    if isinstance(width, numbers.Integral):
        return int(width)
    refuse_unfitted(estimator, given)
    raise InputInvalid(
        "input-not-matrix",
        f"the {class_name(estimator)} in {given} takes something else than a matrix of numbers;"
        " such inputs are not converted yet",
        (Evidence(f"it is fitted, but its n_features_in_ is {width}", file=given),),
        "save the part that takes a matrix, such as the last step of the pipeline, and do the rest before"
        " the model is asked",
    )


def refuse_unfitted(estimator: Any, given: str) -> None:
    """Refuse an estimator that was saved before it was fitted.

    Raises:
        InputInvalid: It was not fitted.
    """
    if not _is_fitted(estimator):
        raise InputInvalid(
            "not-fitted",
            f"the {class_name(estimator)} in {given} was not fitted",
            (Evidence("it has no n_features_in_, nor anything else that fit leaves", file=given),),
            "fit it before it is saved",
        )


def _refuse_unrefitted(estimator: Any, given: str) -> None:
    """A search with ``refit=False`` knows the best parameters and has no model."""
    if hasattr(estimator, "refit") and hasattr(estimator, "cv_results_") and not estimator.refit:
        raise InputInvalid(
            "not-fitted",
            f"the {class_name(estimator)} in {given} holds no fitted model: it searched with refit=False",
            (Evidence("it has cv_results_ and no best_estimator_", file=given),),
            "search with refit=True, or fit the best parameters and save that estimator",
        )


def _is_fitted(estimator: Any) -> bool:
    """scikit-learn's own judgement; of what it cannot judge, only attributes with a trailing ``_`` count."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    except (TypeError, AttributeError):
        return any(n.endswith("_") and not n.startswith("_") for n in getattr(estimator, "__dict__", ()))
    return True


def _without_answer(estimator: Any, given: str) -> InputInvalid:
    """The error for an estimator such as DBSCAN, t-SNE or NearestNeighbors."""
    own = [m for m in ("fit_predict", "fit_transform") if hasattr(estimator, m)]
    what = "answers only for the rows it was trained on" if own else "has neither predict nor transform"
    return InputInvalid(
        "no-new-rows",
        f"the {class_name(estimator)} in {given} {what}",
        (Evidence(f"it has neither predict nor transform{', only ' + own[0] if own else ''}", file=given),),
        "save an estimator with predict or transform, such as a classifier trained on its labels",
    )


def dense(answer: Any, kind: AnswerKind) -> Array:
    """An estimator's answer as one array; sparse matrices are filled up.

    Raises:
        InputInvalid: The answer is a list of arrays.
    """
    import numpy as np

    if hasattr(answer, "toarray"):
        answer = answer.toarray()
    if isinstance(answer, list):
        raise InputInvalid(
            "answer-not-tensor",
            f"the model's {kind.method} answers with a list of {len(answer)} arrays, not with one array",
            evidence(["a classifier of several targets has one array of probabilities a target"]),
            "save one classifier a target",
        )
    return np.asarray(answer)


def final_step(estimator: Any) -> Any:
    """The last step of a pipeline, through nested pipelines; an estimator that is none is its own."""
    steps = getattr(estimator, "steps", None)
    return final_step(steps[-1][1]) if steps else estimator


def class_name(value: Any) -> str:
    """The public name of an object's class: ``sklearn.linear_model.Ridge``."""
    kind = type(value)
    parts = [p for p in kind.__module__.split(".") if not p.startswith("_")]
    return ".".join([*parts, kind.__qualname__]) if parts != ["builtins"] else kind.__qualname__
