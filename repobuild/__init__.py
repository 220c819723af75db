"""repobuild turns trained models into proven NVIDIA Triton model repositories."""

from __future__ import annotations

__version__ = "0.1.0"
