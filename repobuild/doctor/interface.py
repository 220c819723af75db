"""What an examination finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What was looked at.
        state: ``fail`` when ``repobuild convert`` cannot work so, ``warn`` when some models will not convert
            or something is at risk.
        detail: What was seen.
        hint: What to do; empty when nothing is to be done.
    """

    name: str
    state: State
    detail: str
    hint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {"name": self.name, "state": self.state, "detail": self.detail, "hint": self.hint}
