"""The first start of all, when no module has been compiled yet and several models load at once."""

import os
import subprocess
import sys

CODE = """
import asyncio, sys
from repobuild_serve import lifecycle
from repobuild_serve.lifecycle import reading
from repobuild_serve.core.internal import InternalCalls
from repobuild_serve.core.router import Router
from repobuild_serve.core.services import Services
from repobuild_serve.profile import CURRENT
from pathlib import Path
seen = []
natives = ("numpy", "onnxruntime", "google.protobuf.text_format")
original = reading.read_source
def watched(*arguments):
    seen.append(sorted(name for name in natives if name in sys.modules))
    return original(*arguments)
reading.read_source = watched
async def main():
    models, loop = lifecycle.Models(), asyncio.get_running_loop()
    services = Services(loop, InternalCalls(loop, Router()), models, CURRENT, {})
    options = lifecycle.ControlOptions((Path(sys.argv[1]),))
    return await lifecycle.Control(options, models, services, Router()).load_startup()
problems = asyncio.run(main())
print(problems, seen)
"""


def test_loading_threads_find_native_packages_imported(tmp_path):
    (tmp_path / "models" / "m" / "1").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", CODE, tmp_path / "models"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "['google.protobuf.text_format', 'numpy', 'onnxruntime']" in done.stdout
