"""Looks whether this machine has what repobuild needs, before a build finds out."""

from __future__ import annotations

from repobuild.doctor.examine import examine
from repobuild.doctor.interface import Finding

__all__ = ["Finding", "examine"]
