"""From a fitted estimator to ONNX with skl2onnx, inside the child process."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from repobuild.errors import ConversionFailed, EnvironmentLacking, evidence
from repobuild.feeds import Feed
from repobuild.graph.categories import keep_fractions_unknown
from repobuild.graph.columns import split_matrix
from repobuild.graph.doubles import cast_around, takers_of_float64, widen_imputers
from repobuild.graph.trees import fit_trees
from repobuild.graph.walk import rename_inputs
from repobuild.tensors import Array, DType
from repobuild.worker.converters import install, token_option
from repobuild.worker.estimators import AnswerKind, class_name, final_step
from repobuild.worker.loading import first_line
from repobuild.worker.missing_text import missing_as_empty
from repobuild.worker.trees import trees_of

if TYPE_CHECKING:
    from onnx import ModelProto

ML_OPSET = 3
MOST_STEPS = 12


def to_onnx(
    estimator: Any, feed: Feed, floats: DType, opset: int, answers: Sequence[AnswerKind]
) -> tuple[ModelProto, dict[str, str]]:
    """Convert an estimator.

    Args:
        estimator: The fitted estimator.
        feed: How it is fed.
        floats: FP32 or FP64, for the inputs whose type is open.
        opset: Opset of the default domain.
        answers: What it answers with, in the order of the graph's outputs.

    Returns:
        The graph, and ``{answer: selection over a graph output}``.

    Raises:
        ConversionFailed: skl2onnx has no converter, or failed; the steps are named.
    """
    from skl2onnx.common.exceptions import MissingConverter, MissingShapeCalculator

    install()
    _refuse_stop_words(estimator)
    _refuse_categorical_splits(estimator)
    _refuse_tuned_thresholds(estimator)
    try:
        with missing_as_empty(step for _, step in steps_of(estimator)):
            model = _convert(estimator, feed, floats, opset, answers)
        rename_inputs(model.graph, [name for name, _ in _initial_types(feed, floats)])
        keep_fractions_unknown(model)
        widen_imputers(model, list(_imputed_values(estimator)))
        takers = takers_of_float64(model)
        trees = [tree for _, step in steps_of(estimator) for tree in trees_of(step)]
        cast_around(model, takers, fit_trees(model, trees, takers))
        if feed.split:
            split_matrix(model, feed, feed.dtype or floats)
    except (MissingConverter, MissingShapeCalculator) as problem:
        raise ConversionFailed(
            "no-converter",
            f"skl2onnx has no converter for a step of {class_name(estimator)}: the model is not supported",
            evidence([first_line(problem), *_functions(estimator)]),
            "replace the step by one that skl2onnx converts, or register a converter and name its module"
            " under source: custom_ops",
        ) from problem
    except Exception as problem:
        raise ConversionFailed(
            "export-failed",
            f"skl2onnx could not convert {class_name(estimator)} with {floats.value} numbers",
            evidence([f"{type(problem).__name__}: {first_line(problem)}", *_suspects(estimator, feed)]),
            "the evidence is skl2onnx's own message; a smaller pipeline tells which step it means",
        ) from problem
    outputs = [o.name for o in model.graph.output]
    places = {a.name: _place(estimator, a) for a in answers}
    return model, {
        a.name: _selection(estimator, a, outputs[places[a.name]])
        for a in answers
        if places[a.name] < len(outputs)
    }


def register_converters(modules: Sequence[str]) -> None:
    """Import the modules that register converters with skl2onnx.

    Raises:
        EnvironmentLacking: One does not import.
    """
    install()
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as problem:
            raise EnvironmentLacking(
                "converters-missing",
                f"the module '{name}' of custom_ops cannot be imported",
                evidence([f"{type(problem).__name__}: {first_line(problem)}"]),
                "install it beside repobuild, or put its folder on PYTHONPATH",
            ) from problem


def steps_of(estimator: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """An estimator and all that is nested in it, with a path such as ``scale`` or ``prep.cat``."""
    yield path, estimator
    if depth > 8:
        return
    for name, child in _children(estimator):
        if hasattr(child, "get_params") or hasattr(child, "fit"):
            yield from steps_of(child, f"{path}.{name}" if path else name, depth + 1)


def _children(estimator: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(estimator, "steps", None) or ()
    for name, transformer, _ in getattr(estimator, "transformers_", None) or ():
        yield name, transformer
    yield from getattr(estimator, "transformer_list", None) or ()
    fitted = getattr(estimator, "estimators_", None)
    if isinstance(fitted, list):
        yield from ((str(i), e) for i, e in enumerate(fitted[:64]) if not hasattr(e, "tree_"))
    for name in ("best_estimator_", "final_estimator_", "estimator_", "regressor_", "transformer_"):
        if getattr(estimator, name, None) is not None:
            yield name, getattr(estimator, name)
    for index, fold in enumerate(getattr(estimator, "calibrated_classifiers_", None) or ()):
        yield f"calibrated_{index}", fold.estimator


def _refuse_stop_words(estimator: Any) -> None:
    """ONNX cannot take words out of the middle of a text, which n-grams would have to reach over."""
    for path, step in steps_of(estimator):
        longest = getattr(step, "ngram_range", (1, 1))[1]
        if getattr(step, "stop_words", None) and getattr(step, "analyzer", None) == "word" and longest > 1:
            raise ConversionFailed(
                "no-converter",
                "ONNX cannot leave stop words out between the words of n-grams: the model is not supported",
                evidence(
                    [f"step '{path or class_name(step)}' has stop_words and ngram_range {step.ngram_range}"]
                ),
                "train it with ngram_range=(1, 1), or without stop_words",
            )


def _refuse_categorical_splits(estimator: Any) -> None:
    """skl2onnx takes categorical splits of a histogram booster for thresholds, and mixes up its columns."""
    for path, step in steps_of(estimator):
        categorical = getattr(step, "is_categorical_", None)
        if categorical is not None and any(categorical):
            columns = ", ".join(str(i) for i, found in enumerate(categorical) if found)
            raise ConversionFailed(
                "no-converter",
                "skl2onnx has no categorical features of histogram boosters: the model is not supported",
                evidence([f"step '{path or class_name(step)}' has categorical features: columns {columns}"]),
                "encode the categories before the booster, with an OrdinalEncoder or OneHotEncoder",
            )


def _refuse_tuned_thresholds(estimator: Any) -> None:
    """skl2onnx hands on the labels of the classifier inside, which decides at one half."""
    for path, step in steps_of(estimator):
        threshold = getattr(step, "best_threshold_", None)
        if threshold is not None:
            raise ConversionFailed(
                "no-converter",
                "skl2onnx does not apply a tuned decision threshold: the model is not supported",
                evidence([f"step '{path or class_name(step)}' decides at {float(threshold):.6g}"]),
                "convert its estimator_, and compare the probabilities with the threshold in the client",
            )


def _functions(estimator: Any) -> list[str]:
    """Python functions inside the model, which no converter can read."""
    lines = []
    for path, step in steps_of(estimator):
        for attribute in ("func", "inverse_func"):
            function = getattr(step, attribute, None)
            if callable(function):
                where = f" ({function.__module__}, line {_line(function)})" if _line(function) else ""
                name = getattr(function, "__qualname__", None) or getattr(
                    function, "__name__", repr(function)
                )
                lines.append(f"step '{path}' is a {type(step).__name__} of the Python function {name}{where}")
    return lines[:MOST_STEPS]


def _imputed_values(estimator: Any) -> Iterator[Array]:
    """What the model's imputers fill in, ``[columns]`` float64 each."""
    import numpy as np

    for _, step in steps_of(estimator):
        statistics = np.asarray(getattr(step, "statistics_", ()))
        if statistics.size and statistics.dtype.kind == "f":
            yield statistics[~np.isnan(statistics)].astype(np.float64)


def _line(function: Any) -> int | None:
    code = inspect.unwrap(function).__code__ if hasattr(inspect.unwrap(function), "__code__") else None
    return code.co_firstlineno if code else None


def _suspects(estimator: Any, feed: Feed) -> list[str]:
    """What usually stands in the way: functions, steps, and columns of text."""
    text = [c.name for c in feed.columns if c.kind == "text"]
    steps = [f"{path} ({type(step).__name__})" for path, step in steps_of(estimator) if path]
    lines = _functions(estimator)
    if steps:
        more = f" and {len(steps) - MOST_STEPS} more" if len(steps) > MOST_STEPS else ""
        lines.append(f"its steps: {', '.join(steps[:MOST_STEPS])}{more}")
    if text:
        lines.append(f"columns of text (string): {', '.join(text[:MOST_STEPS])}")
    return lines


def _convert(
    estimator: Any, feed: Feed, floats: DType, opset: int, answers: Sequence[AnswerKind]
) -> ModelProto:
    from skl2onnx import convert_sklearn

    final = final_step(estimator)
    common: dict[int, dict[str, Any]] = {
        id(step): option for _, step in steps_of(estimator) if (option := token_option(step))
    }
    choices: list[dict[int, dict[str, Any]]] = [common]
    if _wants_raw_scores(estimator, answers):
        choices.insert(0, {**common, id(final): {"raw_scores": True}})
    for options in choices:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model: ModelProto = convert_sklearn(
                    estimator,
                    name="model",
                    initial_types=_initial_types(feed, floats),
                    options=options,
                    target_opset={"": opset, "ai.onnx.ml": ML_OPSET},
                )
                return model
        except NameError as problem:
            if options is common or "raw_scores" not in str(problem):
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


def _initial_types(feed: Feed, floats: DType) -> list[tuple[str, Any]]:
    from skl2onnx.common import data_types

    kinds = {
        DType.FP32: data_types.FloatTensorType,
        DType.FP64: data_types.DoubleTensorType,
        DType.INT64: data_types.Int64TensorType,
        DType.INT32: data_types.Int32TensorType,
        DType.BOOL: data_types.BooleanTensorType,
        DType.BYTES: data_types.StringTensorType,
    }
    if feed.split:
        wide = feed.dtype or floats
        return [(c.name, kinds[wide]([None, 1])) for c in feed.columns]
    return [(spec.name, kinds[spec.dtype](list(spec.shape))) for spec in feed.inputs(floats)]


def _place(estimator: Any, answer: AnswerKind) -> int:
    """Which output of skl2onnx's graph an answer is: labels come first, then what they rest on."""
    from sklearn.base import is_classifier, is_clusterer, is_outlier_detector

    labelled = is_classifier(estimator) or is_clusterer(estimator) or is_outlier_detector(estimator)
    if answer.method == "score_samples":
        return 2
    return 1 if labelled and answer.method != "predict" else 0


def _wants_raw_scores(estimator: Any, answers: Sequence[AnswerKind]) -> bool:
    return any(a.method == "decision_function" for a in answers) and hasattr(estimator, "classes_")


def _selection(estimator: Any, answer: AnswerKind, output: str) -> str:
    """Two-class scores are a column of their own in scikit-learn, and two columns in the graph."""
    if answer.method == "decision_function" and len(getattr(estimator, "classes_", ())) == 2:
        return f"{output}[:, 1:2]"
    return output
