"""The bundled batching server: KServe v2 / Triton protocol over a Triton model repository."""

from __future__ import annotations

import os

# ONNX Runtime from 1.29 on reports names and hashes of the models that it loads to its maker, unless told.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__version__ = "0.1.0"
