"""Files of ours beside the version folders: warm-up samples, labels, libraries of operators.

Each is named by its content, so that one that a server may be reading is never overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild.emit import labels, libraries, warmup


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of such files.

    Attributes:
        pattern: Where they lie in a model's folder.
        named: The names, without folders, that a ModelConfig message uses.
        is_ours: Whether a file's name fits its content.
    """

    pattern: str
    named: Callable[[Any], set[str]]
    is_ours: Callable[[Path], bool]


KINDS = (
    Kind(
        f"{warmup.FOLDER}/*",
        lambda message: {i.input_data_file for s in message.model_warmup for i in s.inputs.values()},
        warmup.is_ours,
    ),
    Kind(
        labels.PATTERN,
        lambda message: {o.label_filename for o in message.output if o.label_filename},
        labels.is_ours,
    ),
    Kind(libraries.PATTERN, libraries.named, libraries.is_ours),
)


def staged_files(folder: Path) -> Iterator[Path]:
    """All such files of a model's folder."""
    for kind in KINDS:
        yield from sorted(folder.glob(kind.pattern))


def unused_files(folder: Path, message: Any, others: str) -> Iterator[Path]:
    """Those that bear a name of ours and are named neither by a configuration nor in other texts.

    Args:
        folder: The model's folder.
        message: Its ModelConfig message.
        others: Text of further configurations.
    """
    for kind in KINDS:
        used = kind.named(message)
        for file in folder.glob(kind.pattern):
            if file.name not in used and file.name not in others and file.is_file() and kind.is_ours(file):
                yield file


def changed_files(folder: Path, message: Any) -> Iterator[Path]:
    """Those that a configuration of ours names and whose content is not the one they are named by."""
    for kind in KINDS:
        used = kind.named(message)
        for file in sorted(folder.glob(kind.pattern)):
            if file.name in used and file.is_file() and not kind.is_ours(file):
                yield file
