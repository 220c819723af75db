"""Whether the child process in which models load can give up the network; tried in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from repobuild.doctor.interface import Finding

SECONDS = 60.0
CODE = (
    "import json, sys; from repobuild.worker.sandbox import enter; "
    "print(json.dumps(enter(sys.argv[1:]).to_dict()))"
)
LESS = ("not ", "anywhere")
"""How the sandbox's words begin where the system refused something."""


def sandbox_finding() -> Finding:
    """What the sandbox reaches here."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", CODE, tempfile.gettempdir()],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        reached = json.loads(done.stdout)
        words = {str(what): str(how) for what, how in reached.items()}
    except (subprocess.TimeoutExpired, ValueError, AttributeError) as problem:
        return Finding("sandbox", "warn", f"it could not be tried: {problem}", "models may reach the network")
    return judged(words)


def judged(reached: Mapping[str, str]) -> Finding:
    """The finding for what was reached, in the sandbox's own words.

    Args:
        reached: How it stands with the network, the processes and the writes of the child.
    """
    text = "; ".join(f"{what} {how}" for what, how in reached.items())
    if any(how.startswith(LESS) for how in reached.values()):
        hint = "model code that you vouch for is less confined here; see docs/trust.md"
        return Finding("sandbox", "warn", text, hint)
    return Finding("sandbox", "ok", text)
