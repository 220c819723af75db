"""What an inspection gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a path holds.

    Attributes:
        path: As it was named.
        kind: What it is: ``joblib``, ``onnx``, ``tensorrt-engine``, ``repository``, ...
        facts: JSON-ready facts in the order in which they are shown.
        remarks: What could not be told and why, and what is odd.
    """

    path: str
    kind: str
    facts: Mapping[str, Any]
    remarks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "path": self.path,
            "kind": self.kind,
            "facts": dict(self.facts),
            "remarks": list(self.remarks),
        }
