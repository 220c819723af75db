"""Which Triton release's answers are given where releases differ (Triton contract, section 0.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """One release.

    Attributes:
        name: Name on the command line.
        server_version: Version in the server metadata.
        legacy: Whether the answers are those of 24.10 (server 2.51) where they differ from current ones.
    """

    name: str
    server_version: str
    legacy: bool


CURRENT = Profile("current", "2.73.0", legacy=False)
PROFILES = {profile.name: profile for profile in (CURRENT, Profile("24.10", "2.51.0", legacy=True))}
"""The profiles by name; each numbered point of the contract is decided by ``legacy`` where it arises."""
