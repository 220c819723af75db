"""Converters of our own, where skl2onnx's answer otherwise than scikit-learn does.

Each covers what skl2onnx leaves out and hands everything else to skl2onnx's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from repobuild.worker.missing_text import EMPTY

Converter = Callable[[Any, Any, Any], None]

WORDS = "[\\p{L}\\p{N}_]"
"""What Python's ``\\w`` matches, in the words of RE2, whose own ``\\w`` is ASCII alone."""

TOKENS = {
    r"(?u)\b\w\w+\b": WORDS + "{2,}",
    r"\b\w\w+\b": WORDS + "{2,}",
    r"(?u)\b\w+\b": WORDS + "+",
    r"\b\w+\b": WORDS + "+",
    r"(?u)\w+": WORDS + "+",
    r"\w+": WORDS + "+",
}
"""Token patterns of vectorizers and what finds the same tokens in RE2: runs of word characters, whole."""


@functools.cache
def install() -> None:
    """Put the converters in place of skl2onnx's, once a process."""
    from skl2onnx.common._registration import get_converter, register_converter

    for name, wrap in _WRAPPERS.items():
        theirs = get_converter(name)
        register_converter(name, wrap(theirs), overwrite=True, options=theirs.get_allowed_options())


def token_option(step: Any) -> dict[str, str] | None:
    """The option with which skl2onnx's converter finds the tokens of a vectorizer as scikit-learn does.

    Args:
        step: A fitted step of any kind.

    Returns:
        ``None`` where the option does not apply or the pattern has no known counterpart.
    """
    if getattr(step, "analyzer", None) != "word" or getattr(step, "tokenizer", None) is not None:
        return None
    found = TOKENS.get(getattr(step, "token_pattern", None) or "")
    return {"tokenexp": found} if found else None


def _max_abs_scaler(theirs: Converter) -> Converter:
    """MaxAbsScaler cuts to [-1, 1] where ``clip`` says so (scikit-learn 1.8); skl2onnx forgets."""

    def convert(scope: Any, operator: Any, container: Any) -> None:
        if not getattr(operator.raw_operator, "clip", False):
            theirs(scope, operator, container)
            return
        import numpy as np
        from skl2onnx.algebra.onnx_ops import OnnxClip, OnnxDiv

        rows, dtype = _floats(scope, operator, container)
        step = operator.raw_operator
        divided = OnnxDiv(rows, step.scale_.astype(dtype), op_version=container.target_opset)
        OnnxClip(
            divided,
            np.array(-1, dtype=dtype),
            np.array(1, dtype=dtype),
            op_version=container.target_opset,
            output_names=[operator.outputs[0].full_name],
        ).add_to(scope, container)

    return convert


def _normalizer(theirs: Converter) -> Converter:
    """The max norm is that of the largest magnitude; skl2onnx takes the largest value."""

    def convert(scope: Any, operator: Any, container: Any) -> None:
        if operator.raw_operator.norm != "max":
            theirs(scope, operator, container)
            return
        import numpy as np
        from skl2onnx.algebra.onnx_ops import OnnxAbs, OnnxDiv, OnnxEqual, OnnxReduceMax, OnnxWhere

        opset = container.target_opset
        rows, dtype = _floats(scope, operator, container)
        sizes = OnnxAbs(rows, op_version=opset)
        largest = (
            OnnxReduceMax(sizes, np.array([1], dtype=np.int64), keepdims=1, op_version=opset)
            if opset >= 18
            else OnnxReduceMax(sizes, axes=[1], keepdims=1, op_version=opset)
        )
        zero, one = np.array([0], dtype=dtype), np.array([1], dtype=dtype)
        norm = OnnxWhere(OnnxEqual(largest, zero, op_version=opset), one, largest, op_version=opset)
        OnnxDiv(rows, norm, op_version=opset, output_names=[operator.outputs[0].full_name]).add_to(
            scope, container
        )

    return convert


def _ordinal_encoder(theirs: Converter) -> Converter:
    """Missing text has a code of its own (``encoded_missing_value``), NaN by default.

    The fitted state comes from :func:`repobuild.worker.missing_text.missing_as_empty`, where missing text is
    the empty text.
    """

    def convert(scope: Any, operator: Any, container: Any) -> None:
        from skl2onnx.common.data_types import StringTensorType

        step = operator.raw_operator
        textual = all(isinstance(i.type, StringTensorType) for i in operator.inputs)
        if not textual or not _codes_missing(step):
            theirs(scope, operator, container)
            return
        _encode_texts(scope, operator, container)

    return convert


def _one_hot_encoder(theirs: Converter) -> Converter:
    """Unknown text counts as infrequent where ``handle_unknown`` says so; skl2onnx lets the graph fail."""

    def convert(scope: Any, operator: Any, container: Any) -> None:
        from skl2onnx.common.data_types import StringTensorType

        step = operator.raw_operator
        textual = all(isinstance(i.type, StringTensorType) for i in operator.inputs)
        lenient = step.handle_unknown in ("infrequent_if_exist", "warn")
        grouped = step.handle_unknown == "ignore" and getattr(step, "_infrequent_enabled", False)
        if textual and (lenient or grouped):
            _one_hot_texts(scope, operator, container, grouping=lenient)
        else:
            theirs(scope, operator, container)

    return convert


def _one_hot_texts(scope: Any, operator: Any, container: Any, *, grouping: bool) -> None:
    """One column of the answer for every code that is not dropped: whether the text has it.

    With ``grouping``, unknown text counts as infrequent where a column has infrequent categories.
    """
    import numpy as np
    from onnx import TensorProto
    from skl2onnx.common._apply_operation import apply_cast, apply_concat

    step = operator.raw_operator
    count = len(step.categories_)
    shared = getattr(step, "_default_to_infrequent_mappings", None) or [None] * count
    dropped = getattr(step, "_drop_idx_after_grouping", None)
    dropped = [None] * count if dropped is None else dropped
    columns = _columns_of_text(scope, operator, container)
    to = TensorProto.INT64 if np.issubdtype(step.dtype, np.signedinteger) else TensorProto.FLOAT
    parts = []
    for column, categories, mapping, drop in zip(columns, step.categories_, shared, dropped, strict=True):
        codes = np.arange(len(categories)) if mapping is None else np.asarray(mapping)
        kept = [code for code in range(int(codes.max()) + 1) if code != drop]
        unknown = int(codes.max()) if grouping and mapping is not None else -1
        looked_up = {"values_int64s": codes.astype(np.int64), "default_int64": unknown}
        coded = _look_up(scope, container, column, categories, looked_up)
        known, equal, hot = (scope.get_unique_variable_name(n) for n in ("kept_codes", "is_code", "one_hot"))
        container.add_initializer(known, TensorProto.INT64, [1, len(kept)], kept)
        container.add_node("Equal", [coded, known], equal, op_version=11)
        apply_cast(scope, equal, hot, container, to=to)
        parts.append(hot)
    apply_concat(scope, parts, operator.output_full_names[0], container, axis=1)


def _look_up(scope: Any, container: Any, column: str, categories: Any, values: dict[str, Any]) -> str:
    """The name of ``[rows, 1]`` codes: each text's own, or the default of ``values`` for unknown ones."""
    from skl2onnx.common._apply_operation import apply_reshape

    coded, reshaped = (scope.get_unique_variable_name(n) for n in ("codes", "codes_of_column"))
    container.add_node(
        "LabelEncoder",
        column,
        coded,
        op_domain="ai.onnx.ml",
        op_version=2,
        keys_strings=[str(c).encode() for c in categories],
        **values,
    )
    apply_reshape(scope, coded, reshaped, container, desired_shape=(-1, 1))
    return str(reshaped)


def _codes_missing(step: Any) -> bool:
    return any(values.tolist()[-1:] == [EMPTY] for values in step.categories_)


def _encode_texts(scope: Any, operator: Any, container: Any) -> None:
    import numpy as np
    from onnx import TensorProto
    from skl2onnx.common._apply_operation import apply_cast, apply_concat

    step = operator.raw_operator
    unknown = -1.0 if step.handle_unknown == "error" else float(step.unknown_value)
    encoded = []
    columns = _columns_of_text(scope, operator, container)
    for column, categories, codes in zip(columns, step.categories_, _codes(step), strict=True):
        looked_up = {"values_floats": codes, "default_float": unknown}
        encoded.append(_look_up(scope, container, column, categories, looked_up))
    joined = scope.get_unique_variable_name("joined")
    apply_concat(scope, encoded, joined, container, axis=1)
    whole = not np.issubdtype(step.dtype, np.floating)
    apply_cast(
        scope,
        joined,
        operator.output_full_names,
        container,
        to=TensorProto.INT64 if whole else TensorProto.FLOAT,
    )


def _columns_of_text(scope: Any, operator: Any, container: Any) -> Iterator[str]:
    """The columns of all inputs in order, each a variable of its own."""
    from onnx import TensorProto

    for taken in operator.inputs:
        width = taken.get_second_dimension()
        if width == 1:
            yield taken.full_name
            continue
        for index in range(width):
            place, column = (scope.get_unique_variable_name(n) for n in ("place", "column_of_text"))
            container.add_initializer(place, TensorProto.INT64, [1], [index])
            container.add_node(
                "ArrayFeatureExtractor", [taken.full_name, place], column, op_domain="ai.onnx.ml"
            )
            yield column


def _codes(step: Any) -> Iterator[Any]:
    """By column the code of every category, float32, in the order of ``categories_``.

    Infrequent categories share one code (``_default_to_infrequent_mappings``, without missing text), and
    missing text has its own.
    """
    import numpy as np

    missing = getattr(step, "_missing_indices", {})
    shared = getattr(step, "_default_to_infrequent_mappings", None) or [None] * len(step.categories_)
    for index, (categories, mapping) in enumerate(zip(step.categories_, shared, strict=True)):
        codes = np.arange(len(categories), dtype=np.float32)
        if mapping is not None:
            codes[: len(mapping)] = mapping
        if index in missing:
            codes[missing[index]] = step.encoded_missing_value
        yield codes


def _floats(scope: Any, operator: Any, container: Any) -> tuple[Any, Any]:
    """The operator's input as one float matrix, and its NumPy type."""
    import numpy as np
    from skl2onnx.algebra.onnx_ops import OnnxCast
    from skl2onnx.common.data_types import guess_numpy_type
    from skl2onnx.operator_converters.common import concatenate_variables
    from skl2onnx.proto import onnx_proto

    name = (
        concatenate_variables(scope, operator.inputs, container)
        if len(operator.inputs) > 1
        else operator.inputs[0].full_name
    )
    double = guess_numpy_type(operator.inputs[0].type) == np.float64
    to = onnx_proto.TensorProto.DOUBLE if double else onnx_proto.TensorProto.FLOAT
    return (
        OnnxCast(name, to=to, op_version=container.target_opset),
        np.float64 if double else np.float32,
    )


_WRAPPERS: dict[str, Callable[[Converter], Converter]] = {
    "SklearnMaxAbsScaler": _max_abs_scaler,
    "SklearnNormalizer": _normalizer,
    "SklearnOneHotEncoder": _one_hot_encoder,
    "SklearnOrdinalEncoder": _ordinal_encoder,
}
