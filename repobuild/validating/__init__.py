"""Checks a repository again after it was built: on disk against its records, and on the bundled server."""

from __future__ import annotations

from repobuild.validating.interface import Finding, Validation
from repobuild.validating.validate import validate

__all__ = ["Finding", "Validation", "validate"]
