"""The protobuf text format as Triton's parser reads it; the server has the same reader."""

from __future__ import annotations

from repobuild_serve.config.textformat import Refused, Rewritten, rewritten

__all__ = ["Refused", "Rewritten", "rewritten"]
