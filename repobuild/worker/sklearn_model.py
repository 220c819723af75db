"""A scikit-learn estimator inside the child process: what it answers with, its ONNX form, its predictions."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import lzma
import pickle
import warnings
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import (
    ConversionFailed,
    EnvironmentLacking,
    Evidence,
    InputInvalid,
    RepobuildError,
    evidence,
)
from repobuild.tensors import Array, Batch, DType
from repobuild.worker.arrays import writing
from repobuild.worker.estimators import AnswerKind, answers_of, class_name, dense, final_step, width_of

ML_OPSET = 3
PACKAGES = ("joblib", "sklearn", "skl2onnx")
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
        self, estimator: Any, given: str, inputs: Sequence[Mapping[str, Any]], notes: list[str]
    ) -> None:
        self._estimator = estimator
        self._notes = notes
        self._answers = answers_of(estimator, given)
        self._width = width_of(estimator, given)
        self._input, self._dtype = self._matrix_input(inputs)

    @classmethod
    def load(cls, path: Path, given: str, inputs: Sequence[Mapping[str, Any]]) -> SklearnModel:
        """Unpickle a vouched-for file. This runs the code that the file names.

        Raises:
            InputInvalid: The file is damaged, cannot be loaded here, or holds no estimator.
            EnvironmentLacking: scikit-learn, skl2onnx, or a package or class that the file needs is not
                installed here.
        """
        _require_packages(given)
        import joblib

        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                estimator = joblib.load(path)
        except MemoryError:
            raise
        except Exception as problem:
            named = _load_error(problem, given)
            if named is None:
                raise
            raise named from None
        return cls(estimator, given, inputs, sorted({_note(w.message) for w in caught}))

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
            "tools": _tool_versions(),
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
                evidence([_first_line(problem)]),
                "replace the step by one that skl2onnx converts",
            ) from problem
        except Exception as problem:
            raise ConversionFailed(
                "export-failed",
                f"skl2onnx could not convert {class_name(self._estimator)}",
                evidence([f"{type(problem).__name__}: {_first_line(problem)}"]),
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
                    evidence([f"{type(problem).__name__}: {_first_line(problem)}"]),
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


def _require_packages(given: str) -> None:
    missing = [n for n in PACKAGES if importlib.util.find_spec(n) is None]
    if missing:
        raise EnvironmentLacking(
            "sklearn-missing",
            f"{given} needs packages that are not installed here",
            evidence([f"not installed: {', '.join(missing)}"]),
            "pip install 'repobuild[sklearn]', with the scikit-learn that the model was trained with",
        )
    try:
        for name in PACKAGES:
            importlib.import_module(name)
    except (ImportError, OSError) as problem:
        raise EnvironmentLacking(
            "worker-start-failed",
            f"the packages that load {given} are installed, but cannot be imported",
            evidence([f"{type(problem).__name__}: {_first_line(problem)}"]),
            "nothing of the model had run yet; see whether Python imports them outside repobuild, and ulimit",
        ) from problem


def _load_error(problem: Exception, given: str) -> RepobuildError | None:
    """What an exception of ``joblib.load`` means, or ``None`` for one that only code of the model raises."""
    seen = Evidence(f"{type(problem).__name__}: {problem}", file=given)
    if isinstance(problem, ModuleNotFoundError):
        has = _has_package(problem.name)
        return EnvironmentLacking(
            "module-missing",
            f"{given} needs the module '{problem.name}', which is not installed here",
            (Evidence(str(problem), file=given), *evidence(_installed() if has else ())),
            f"{'its package is here, but in another version; ' if has else ''}install the package that the"
            " model was trained with, in the version it was trained with",
        )
    if isinstance(problem, AttributeError):
        return EnvironmentLacking(
            "class-missing",
            f"{given} needs something that the installed packages do not have",
            (Evidence(str(problem), file=given), *evidence(_installed())),
            "the model was saved with another version of its package, or with a class from a script;"
            " convert it where it was trained",
        )
    if _is_damage(problem):
        return InputInvalid(
            "model-damaged",
            f"{given} cannot be read as a joblib file: it is damaged or incomplete",
            (seen,),
            "save the model again with joblib.dump, or fetch the file again",
        )
    if isinstance(problem, ImportError | ValueError | LookupError | TypeError | pickle.UnpicklingError):
        return InputInvalid(
            "model-unloadable",
            f"{given} cannot be loaded with the packages that are installed here",
            (seen, *evidence(_installed())),
            "usually it was saved with another version of its package, or the file is damaged; convert it"
            " with the versions it was trained with, or save it again",
        )
    return None


def _has_package(module: str | None) -> bool:
    """Whether the package around a module that was not found is installed."""
    package, dot, _ = (module or "").partition(".")
    return bool(dot) and importlib.util.find_spec(package) is not None


def _is_damage(problem: Exception) -> bool:
    """Whether only a file that lost or changed bytes raises this."""
    if isinstance(problem, EOFError | zlib.error | lzma.LZMAError | gzip.BadGzipFile):
        return True
    text = str(problem)
    if isinstance(problem, pickle.UnpicklingError):
        return "truncated" in text or "invalid load key" in text
    if isinstance(problem, ValueError):
        return text.startswith("EOF: reading")
    return isinstance(problem, OSError) and text == "Invalid data stream"


def _note(warning: object) -> str:
    """A warning in one line, without the pointer to a web page that scikit-learn adds."""
    return " ".join(str(warning).partition("For more info please refer to")[0].split())[:500]


def _first_line(problem: object) -> str:
    lines = str(problem).strip().splitlines()
    return lines[0][:500] if lines else type(problem).__name__


def _json_values(values: Any) -> Any:
    """Class labels as JSON; an estimator of several targets has one array a target."""
    plain = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(plain, list):
        return [_json_values(v) for v in plain]
    return plain if isinstance(plain, bool | int | float | str) else str(plain)


def _tool_versions() -> dict[str, str]:
    import joblib
    import numpy as np
    import onnx
    import skl2onnx
    import sklearn

    modules = {"scikit-learn": sklearn, "skl2onnx": skl2onnx, "onnx": onnx, "joblib": joblib, "numpy": np}
    return {name: module.__version__ for name, module in modules.items()}


def _installed() -> list[str]:
    return [f"installed here: {name} {version}" for name, version in _tool_versions().items()]
