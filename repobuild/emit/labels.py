"""Label files: the text of each element of an output, one a line, beside config.pbtxt.

Triton reads ``label_filename`` relative to the model's folder and names classes by it in classification
requests. A file is named by its content, so that an older one is never overwritten while it may be read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repobuild.errors import InputInvalid, evidence

PATTERN = "*_labels-*.txt"


@dataclass(frozen=True, slots=True)
class LabelFiles:
    """The label files of a model.

    Attributes:
        by_output: File name by output.
        files: Content by file name.
    """

    by_output: Mapping[str, str]
    files: Mapping[str, bytes]


def make_labels(labels: Mapping[str, Sequence[str]]) -> LabelFiles:
    """Label files for outputs.

    Args:
        labels: ``{output: text of each element}``.

    Raises:
        InputInvalid: A label cannot stand on a line of its own.
    """
    by_output: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for position, (output, texts) in enumerate(labels.items()):
        bad = [t for t in texts if not t.strip() or len(t.splitlines()) != 1]
        if bad:
            raise InputInvalid(
                "labels-unfit",
                f"the labels of output '{output}' cannot be written into a label file, one a line",
                evidence([f"label {t!r} is empty or holds a line break" for t in bad[:4]]),
                "train with other class names, or leave labels out for this output",
            )
        data = "".join(f"{t}\n" for t in texts).encode()
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", output).strip("_")[:40] or f"output_{position}"
        name = f"{plain}_labels-{_digest(data)}.txt"
        by_output[output], files[name] = name, data
    return LabelFiles(by_output, files)


def is_ours(file: Path) -> bool:
    """Whether a label file bears the name that this module gives to its content."""
    return file.stem.rpartition("-")[2] == _digest(file.read_bytes())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
