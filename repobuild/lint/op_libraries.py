"""Libraries of custom operators that a configuration names."""

from __future__ import annotations

from pathlib import PurePosixPath

from repobuild.lint.finding import Findings
from repobuild.lint.model import Model, View


def check_op_libraries(model: Model, view: View, findings: Findings) -> None:
    """Check that the server can find the libraries, as far as the configuration tells."""
    names = view.config.model_operations.op_library_filename
    beside = {entry.name for entry in model.children}
    for index, name in enumerate(names):
        place = view.where("model_operations", 0, "op_library_filename", index)
        if view.effective.backend != "onnxruntime":
            findings.add(
                "op-library-unread",
                f"the backend '{view.effective.backend}' loads no library '{name}'",
                *place,
            )
        elif not PurePosixPath(name).is_absolute() and "/" in name:
            findings.add(
                "op-library-relative",
                f"'{name}' is looked for from the folder that the server is started in",
                *place,
            )
        elif name in beside:
            findings.add(
                "op-library-search",
                f"'{name}' lies in the model's folder, and is looked for in LD_LIBRARY_PATH",
                *place,
            )
