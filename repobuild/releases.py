"""What each Triton release contains, as far as a model has to fit it: runtimes, opsets, IR, CUDA, Python.

Every value stands with its source in :data:`SOURCES`; what no source was read for is ``None``, never a guess.
``docs/releases.md`` is written from this table.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from repobuild.errors import Evidence, InputInvalid

_SERVER = "https://github.com/triton-inference-server/server"
SOURCES: Mapping[str, str] = {
    "triton": f"{_SERVER}: file TRITON_VERSION on branch r<release>",
    "onnxruntime": f"{_SERVER}: the version map in build.py on branch r<release>",
    "opsets": (
        "https://pypi.org/project/onnxruntime: models of each opset, ai.onnx.ml opset and IR version loaded "
        "into that ONNX Runtime; up to 1.20 also "
        "https://onnxruntime.ai/docs/reference/compatibility.html, which for ai.onnx.ml in 1.18 to 1.20 "
        "names 4 where the runtime takes 5"
    ),
    "cuda": f"{_SERVER}/blob/r26.08/docs/introduction/compatibility.md, rows of the vllm-python-py3 image; "
    "https://docs.nvidia.com/deeplearning/triton-inference-server/release-notes/ (rel-24-01, rel-24-10, "
    "rel-26-06)",
    "python": f"{_SERVER}/blob/r26.08/docs/introduction/compatibility.md, rows of the vllm-python-py3 image",
    "tensorrt": "not read: https://docs.nvidia.com/deeplearning/frameworks/support-matrix/index.html",
}
"""Where the columns of the table come from."""

_OF_RUNTIME: Mapping[str, tuple[int, int, int]] = {
    "1.16": (19, 3, 9),
    "1.17": (20, 4, 9),
    "1.18": (21, 5, 10),
    "1.19": (21, 5, 10),
    "1.20": (21, 5, 10),
    "1.21": (22, 5, 10),
    "1.22": (22, 5, 10),
    "1.23": (23, 5, 11),
    "1.24": (25, 5, 13),
    "1.27": (26, 5, 13),
    "1.28": (26, 5, 13),
}
"""ONNX Runtime minor release: newest opset, ai.onnx.ml opset and IR version that it loads."""


@dataclass(frozen=True, slots=True)
class Release:
    """One release of the Triton container ``tritonserver:<name>-py3``.

    Attributes:
        name: ``yy.mm``.
        triton: Version of the server.
        onnxruntime: Version of ONNX Runtime in its backend.
        opset: Newest opset of the default domain that it loads.
        ml_opset: Newest opset of ``ai.onnx.ml`` that it loads.
        ir: Newest ONNX IR version that it loads.
        tensorrt: Version of TensorRT; ``None`` where no source was read.
        cuda: Version of CUDA; ``None`` where no source was read.
        python: ``major.minor`` of the Python that the python backend's stub is built for; ``None`` where no
            source was read.
    """

    name: str
    triton: str
    onnxruntime: str
    opset: int
    ml_opset: int
    ir: int
    tensorrt: str | None
    cuda: str | None
    python: str | None


def _row(name: str, triton: str, onnxruntime: str, cuda: str | None, python: str | None) -> Release:
    opset, ml_opset, ir = _OF_RUNTIME[onnxruntime.rpartition(".")[0]]
    return Release(name, triton, onnxruntime, opset, ml_opset, ir, None, cuda, python)


RELEASES: Mapping[str, Release] = {
    release.name: release
    for release in (
        _row("23.10", "2.39.0", "1.16.0", None, None),
        _row("23.11", "2.40.0", "1.16.3", None, None),
        _row("23.12", "2.41.0", "1.16.3", None, None),
        _row("24.01", "2.42.0", "1.16.3", "12.3.2", None),
        _row("24.02", "2.43.0", "1.16.3", None, None),
        _row("24.03", "2.44.0", "1.17.2", None, None),
        _row("24.04", "2.45.0", "1.17.3", "12.4.1", "3.10"),
        _row("24.05", "2.46.0", "1.18.0", "12.4.1", "3.10"),
        _row("24.06", "2.47.0", "1.18.0", "12.5.0", "3.10"),
        _row("24.07", "2.48.0", "1.18.1", "12.5.1", "3.10"),
        _row("24.08", "2.49.0", "1.18.1", "12.6.0", "3.10"),
        _row("24.09", "2.50.0", "1.19.2", "12.6.1", "3.10"),
        _row("24.10", "2.51.0", "1.19.2", "12.6.2", "3.10"),
        _row("24.11", "2.52.0", "1.19.2", "12.6.3", "3.12"),
        _row("24.12", "2.53.0", "1.20.1", "12.6.3", "3.12"),
        _row("25.01", "2.54.0", "1.20.1", "12.8.0", "3.12"),
        _row("25.02", "2.55.0", "1.20.1", "12.8.0", "3.12"),
        _row("25.03", "2.56.0", "1.21.0", "12.8.1", "3.12"),
        _row("25.04", "2.57.0", "1.21.0", "12.9.0", "3.12"),
        _row("25.05", "2.58.0", "1.22.0", "12.9.0", "3.12"),
        _row("25.06", "2.59.0", "1.22.0", "12.9.0", "3.12"),
        _row("25.07", "2.59.1", "1.22.0", "12.9.0", "3.12"),
        _row("25.08", "2.60.0", "1.23.0", "13.0.1", "3.12"),
        _row("25.09", "2.61.0", "1.23.0", "13.0.1", "3.12"),
        _row("25.10", "2.62.0", "1.23.1", "13.0.2", "3.12"),
        _row("25.11", "2.63.0", "1.23.2", "13.0.2", "3.12"),
        _row("25.12", "2.64.0", "1.23.2", "13.1.0", "3.12"),
        _row("26.01", "2.65.0", "1.23.2", "13.1.1", "3.12"),
        _row("26.02", "2.66.0", "1.24.1", "13.1.1", "3.12"),
        _row("26.03", "2.67.0", "1.24.2", "13.2.0", "3.12"),
        _row("26.04", "2.68.0", "1.24.4", "13.2.1", "3.12"),
        _row("26.05", "2.69.0", "1.24.4", "13.2.1", "3.12"),
        _row("26.06", "2.70.0", "1.24.4", "13.3.0", "3.12"),
        _row("26.07", "2.71.0", "1.27.0", "13.3.0", "3.12"),
        _row("26.08", "2.72.0", "1.28.0", "13.4.1", "3.12"),
    )
}
"""The releases by name, oldest first."""


def release(name: str) -> Release:
    """The release of that name.

    Args:
        name: ``yy.mm``.

    Raises:
        InputInvalid: ``release-unknown``: the table does not have it.
    """
    found = RELEASES.get(name)
    if found is None:
        near = difflib.get_close_matches(name, RELEASES, 3, 0.5)
        raise InputInvalid(
            "release-unknown",
            f"Triton release '{name}' is not in the table of releases",
            (
                Evidence(f"near are {', '.join(near)}" if near else "a release is named as yy.mm"),
                Evidence(f"the table goes from {next(iter(RELEASES))} to {newest().name}"),
            ),
            "name a release of the table; a newer one loads what the newest in the table does",
        )
    return found


def newest() -> Release:
    """The newest release of the table, which is the default target."""
    return list(RELEASES.values())[-1]


def as_markdown() -> str:
    """docs/releases.md."""
    lines = [
        "# Triton releases",
        "",
        "What repobuild knows of each release of the container `tritonserver:<release>-py3`. A target release",
        "decides which opsets and IR versions a graph may have; the newest one is the default. A dash means that",
        "no source was read for the value, and nothing is checked against it.",
        "",
        "| release | Triton | ONNX Runtime | opset | ai.onnx.ml | IR | TensorRT | CUDA | Python |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {r.name} | {r.triton} | {r.onnxruntime} | {r.opset} | {r.ml_opset} | {r.ir} | "
            f"{r.tensorrt or '-'} | {r.cuda or '-'} | {r.python or '-'} |"
            for r in RELEASES.values()
        ),
        "",
        "## Sources",
        "",
        *(f"- {column}: {source}" for column, source in SOURCES.items()),
        "",
        "What was read and what was not:",
        "",
        "- Triton and ONNX Runtime versions were read from the release branches themselves. For 24.08 the build",
        "  script names ONNX Runtime 1.19.0 and the compatibility page 1.18.1; the older of the two is in the table.",
        "- Opsets and IR versions were measured: a model of every opset from 17, every `ai.onnx.ml` opset from 2 and",
        "  every IR version from 7 was loaded into onnxruntime 1.16.0, 1.16.3, 1.17.3, 1.18.0, 1.18.1, 1.19.2, 1.20.1,",
        "  1.21.0, 1.22.0, 1.23.0, 1.23.2, 1.24.1, 1.24.4, 1.27.0 and 1.28.0 from PyPI. Patch releases that are not",
        "  in this list (1.17.2, 1.23.1, 1.24.2) stand under the values of their minor release. The runtime inside",
        "  the container was not run.",
        "- CUDA and Python are those of the image with vLLM, where the compatibility page lists them; NVIDIA's release",
        "  notes name the same CUDA version where both were read (24.10, 26.06). Releases before 24.04 are not listed there.",
        "- TensorRT was not read: the page with NVIDIA's support matrix was not at hand, and the image with",
        "  TensorRT-LLM, which the compatibility page lists, holds another TensorRT than `-py3` does.",
        "- No release after 26.08 was found in the sources.",
    ]
    return "\n".join(lines) + "\n"
