"""Libraries of custom operators: how config.pbtxt names them, and where they lie.

Triton hands ``op_library_filename`` to the dynamic linker as it is (``RegisterCustomOpsLibrary`` in
https://github.com/triton-inference-server/onnxruntime_backend, src/onnxruntime.cc): a bare name is looked for
in ``LD_LIBRARY_PATH``, a relative path from the folder that the server was started in. The model's folder is
no part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from repobuild.artifact import Library, file_digest

PATTERN = "*-*.so"
_OF_OURS = re.compile(r".+-[0-9a-f]{12}\.so")


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a server finds the libraries of a model.

    Attributes:
        files: Those that come with the model: private copy by name in the model's folder.
        notes: What the server needs, in words.
    """

    files: Mapping[str, Path]
    notes: tuple[str, ...]


def place_libraries(serving: Any, libraries: Sequence[Library]) -> Placed:
    """Let a configuration name the libraries.

    Where the recipe states a path for each, they are somebody else's to put there. Where it states a folder,
    which ends in a slash, or nothing, they come with the model.

    Args:
        serving: ModelConfig message with the recipe's fields; changed in place.
        libraries: The libraries; :func:`library_mistakes` has found nothing.
    """
    if not libraries:
        return Placed({}, ())
    stated = list(serving.model_operations.op_library_filename)
    folder = stated[0] if stated and stated[0].endswith("/") else ""
    if stated and not folder:
        lines = [f"{PurePosixPath(s).name} must lie at {s} on the server" for s in stated]
        return Placed({}, tuple(f"{line}, and is not in the repository" for line in lines))
    names = [folder + one.shipped for one in libraries]
    serving.model_operations.ClearField("op_library_filename")
    serving.model_operations.op_library_filename.extend(names)
    need = (
        f"the model's folder lies at {folder} there"
        if folder
        else "it is started with LD_LIBRARY_PATH naming the model's folder"
    )
    note = f"a server finds {', '.join(names)} only if {need}"
    return Placed({one.shipped: one.path for one in libraries}, (note,))


def library_mistakes(stated: Sequence[str], names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """What is wrong about the paths that a recipe states.

    Args:
        stated: Its ``op_library_filename``.
        names: File names of its libraries.

    Yields:
        The index of the path, and what is wrong.
    """
    if len(stated) == 1 and stated[0].endswith("/"):
        return
    for index, path in enumerate(stated):
        name = PurePosixPath(path).name
        if path.endswith("/"):
            yield index, f"'{path}' is a folder, and must be the only entry"
        elif name not in names:
            yield index, f"'{name}' is none of the libraries under source: custom_ops"
        elif name in [PurePosixPath(p).name for p in stated[:index]]:
            yield index, f"'{name}' is named twice"
    lacking = [n for n in names if n not in [PurePosixPath(p).name for p in stated]]
    if stated and lacking:
        yield len(stated) - 1, f"no path is given for {', '.join(lacking)}"


def named(message: Any) -> set[str]:
    """Files of the model's folder that a configuration may name as libraries, by bare name or in a folder."""
    return {PurePosixPath(path).name for path in message.model_operations.op_library_filename}


def absent(folder: Path, message: Any) -> Iterator[str]:
    """Libraries that came with a model, as their names tell, and are no longer in its folder."""
    for name in sorted(named(message)):
        if _OF_OURS.fullmatch(name) and not (folder / name).is_file():
            yield name


def is_ours(file: Path) -> bool:
    """Whether a library bears the name that :attr:`repobuild.artifact.Library.shipped` gives its content."""
    return file.stem.rpartition("-")[2] == file_digest(file)[:12]
