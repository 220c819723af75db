"""Cases that ONNX Runtime itself answers otherwise than ONNX prescribes, each with what is known of it.

A case is counted here only if ONNX Runtime, asked for the case's own file without optimisation, gives the
very answers that the server gave.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.cases import Case, as_text

_LIST = "listed in ONNX Runtime's onnx_backend_test_series_filters.jsonc"
_ATTENTION = (
    "`qk_matmul_output` of Attention comes without the causal mask's infinities; the same case as a function"
    " of simpler operators is right"
)
KNOWN: dict[str, str] = {
    "test_maxunpool_export_with_output_shape": f"{_LIST}: result mismatch (onnx/onnx issue 2398)",
    "test_resize_downsample_scales_cubic_align_corners": f"{_LIST}: results mismatch with onnx tests",
    "test_resize_downsample_scales_linear_align_corners": f"{_LIST}: results mismatch with onnx tests",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal": _ATTENTION,
    "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal": _ATTENTION,
}


def direct(case: Case) -> dict[str, Any]:
    """What ONNX Runtime answers to the case's own file."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return {n: as_text(a) for n, a in zip(names, session.run(names, case.sent()), strict=True)}
