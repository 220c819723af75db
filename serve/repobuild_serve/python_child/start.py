"""Entry of the process that runs one python model: ``python start.py MAIN_FD SIDE_FD``.

Makes ``repobuild_serve.python_child`` importable without the server's own package, which another interpreter
does not have, and without a folder of ours at the front of ``sys.path``.
"""

import sys
from pathlib import Path
from types import ModuleType


def _begin() -> None:
    here = Path(__file__).resolve().parent
    package = ModuleType("repobuild_serve")
    package.__path__ = [str(here.parent)]
    sys.modules["repobuild_serve"] = package
    # As an embedded interpreter has it: the working folder in place of the folder of this file.
    sys.path[:] = ["", *(entry for entry in sys.path if entry and Path(entry).resolve() != here)]
    from repobuild_serve.python_child.serving import serve

    serve(int(sys.argv[1]), int(sys.argv[2]))


_begin()
