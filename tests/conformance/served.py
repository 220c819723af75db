"""Asks the bundled server for every case, with tritonclient, and compares with the stored answers."""

from __future__ import annotations

from typing import Any

from tests.conformance.build import Built
from tests.conformance.cases import as_text


def answers(client: Any, built: Built) -> dict[str, Any]:
    """What the server answers to the stored inputs, under the names that the case has for its outputs."""
    import numpy as np
    from tritonclient.http import InferInput, InferRequestedOutput

    wire = built.feed.to_wire(built.case.sent(), batched=built.batched)
    inputs = []
    for spec in built.emission.signature.inputs:
        array = wire[spec.name]
        if array.dtype.kind == "U":
            array = np.array([v.encode() for v in array.ravel()], dtype=object).reshape(array.shape)
        tensor = InferInput(spec.name, list(array.shape), spec.dtype.value)
        tensor.set_data_from_numpy(np.ascontiguousarray(array))
        inputs.append(tensor)
    outputs = [InferRequestedOutput(name) for name in built.renamed.values()]
    result = client.infer(built.case.name, inputs, outputs=outputs)
    return {old: as_text(result.as_numpy(new)) for old, new in built.renamed.items()}


HALF_ULPS = 2.0**-9
"""Two units in the last place of float16, relative; ONNX's runner allows as much for bfloat16."""

SUMS = 1e-6
"""Part of the largest answer by which transforms, sums that cancel, may be off in float32."""

TRANSFORMS = ("DFT", "STFT")


def difference(built: Built, got: dict[str, Any], stored: dict[str, Any] | None = None) -> str:
    """How the answers differ from the stored ones, empty for not at all.

    The bounds are those of ONNX's own runner, wider for float16 and for Fourier transforms. An output that
    has fewer axes than Triton carries comes with axes of size 1 behind its own.

    Args:
        built: The case.
        got: The server's answers.
        stored: Other answers to compare with.
    """
    import numpy as np

    lowest = 2 if built.batched else 1
    for name, have in got.items():
        want = np.asarray((stored or built.case.outputs)[name])
        shape = (*want.shape, *[1] * (lowest - want.ndim))
        if have.shape != shape:
            return f"output '{name}' has shape {list(have.shape)}, expected {list(shape)}"
        want = want.reshape(shape)
        if have.dtype.kind == want.dtype.kind == "U":
            if not np.array_equal(have, want):
                return f"output '{name}' is {have.ravel()[:3]}, expected {want.ravel()[:3]}"
            continue
        if have.dtype != want.dtype:
            return f"output '{name}' is {have.dtype}, expected {want.dtype}"
        rtol, atol = built.case.rtol, built.case.atol
        if want.dtype == np.float16:
            rtol = max(rtol, HALF_ULPS)
        if built.case.operator in TRANSFORMS:
            atol = max(atol, SUMS * float(np.abs(want).max()))
        try:
            np.testing.assert_allclose(have, want, rtol=rtol, atol=atol)
        except AssertionError as problem:
            lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
            return f"output '{name}': {'; '.join(lines[1:4])}"
    return ""
