"""Whether the child process in which models load can give up the network; tried in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

from repobuild.doctor.interface import Finding

SECONDS = 60.0
CODE = "import json; from repobuild.worker.sandbox import enter; print(json.dumps(enter().to_dict()))"


def sandbox_finding() -> Finding:
    """What the sandbox reaches here."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", CODE],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        reached = json.loads(done.stdout)
        network, processes = str(reached["network"]), str(reached["processes"])
    except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as problem:
        return Finding("sandbox", "warn", f"it could not be tried: {problem}", "models may reach the network")
    return judged(network, processes)


def judged(network: str, processes: str) -> Finding:
    """The finding for what was reached, in the sandbox's own words."""
    text = f"network {network}; processes {processes}"
    if network.startswith("not") or processes.startswith("not"):
        hint = "model code that you vouch for is less confined here; allow user namespaces or seccomp"
        return Finding("sandbox", "warn", text, hint)
    return Finding("sandbox", "ok", text)
