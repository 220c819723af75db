"""Targets that the format knows before there are compilers for them."""

from __future__ import annotations

from collections.abc import Mapping

PLANNED: Mapping[str, str] = {
    "tensorrt": "TensorRT is not available here: this release of repobuild has no compiler for it, which"
    " would also need TensorRT installed and an NVIDIA GPU",
    "tensorrt-rtx": "TensorRT-RTX is not available here: this release of repobuild has no compiler for it",
    "openvino": "OpenVINO is not available here: this release of repobuild has no compiler for it",
}
"""Targets that the recipe format knows and that no registered compiler makes yet, with what to say."""
