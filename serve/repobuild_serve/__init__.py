"""The bundled batching server: KServe v2 / Triton protocol over a Triton model repository."""

from __future__ import annotations

__version__ = "0.1.0"
