"""The error for files that would run code when they are loaded, with what they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from repobuild.errors import Evidence, SourceUntrusted
from repobuild.sources.archive_scan import ArchiveScan, beyond_tensors
from repobuild.sources.model_file import ModelFile

SHOWN_NAMES = 24
SHOWN_LENGTH = 200
USUAL = re.compile(
    r"(?:sklearn|numpy|scipy)\.(?:\w+\.)*(?:[A-Z]\w*|cs[cr]_(?:matrix|array)|dtype|ndarray|scalar|_reconstruct"
    r"|_frombuffer|__\w+_ctor|__pyx_unpickle_\w+)"
    r"|joblib\.numpy_pickle\.NumpyArrayWrapper|copyreg\.(?:_reconstructor|__newobj__)"
    r"|collections\.(?:OrderedDict|Counter|defaultdict|deque)"
)
"""What honest models of scikit-learn call: classes, and what NumPy makes arrays with. It only decides which
calls are worth a line of their own; every name is listed among the imports."""


def untrusted(file: ModelFile, what: str, lines: Iterable[str]) -> SourceUntrusted:
    """The error for a file that nobody vouched for.

    Args:
        file: The file.
        what: What it is and does, to follow its name: "is a pickle: loading it ...".
        lines: What loading it would do, most telling first.
    """
    return SourceUntrusted(
        "source-untrusted",
        f"{file.given} {what}, and nobody vouched for it",
        tuple(Evidence(line, file=file.given) for line in lines),
        f"if you made the file, pass --trust pickle, or pin it in the recipe: sha256: {file.digest}",
    )


def what_it_would_do(calls: Sequence[str], imports: Sequence[str], code: Sequence[str] = ()) -> list[str]:
    """Lines on what a pickle calls, carries and imports; calls of what models usually call are left out."""
    return [
        *shown("loading it would CALL", [name for name in calls if not is_usual(name)]),
        *shown("it carries the code of", code),
        *shown("loading it would import", imports),
    ]


def shown(what: str, names: Sequence[str]) -> list[str]:
    """Lines on the first few names, each of them cut at a length that fits a screen."""
    lines = [f"{what} {_cut(name)}" for name in names[:SHOWN_NAMES]]
    if len(names) > SHOWN_NAMES:
        lines.append(f"{what} {len(names) - SHOWN_NAMES} more")
    return lines


def is_usual(name: str) -> bool:
    """Whether a name is one of :data:`USUAL`."""
    return USUAL.fullmatch(name) is not None


def _cut(name: str) -> str:
    return name if len(name) <= SHOWN_LENGTH else f"{name[:SHOWN_LENGTH]}... ({len(name)} characters)"


def unsafe_lines(scan: ArchiveScan) -> list[str]:
    """What pickles of an archive name beyond what tensors need, member by member.

    Empty for archives of tensors; a scan that was lost counts as unsafe.
    """
    lines = []
    unsafe = any(not found.complete for found in scan.pickles.values())
    for name, found in scan.pickles.items():
        imports = tuple(beyond_tensors(found.imports))
        calls = tuple(beyond_tensors(found.calls))
        unsafe = unsafe or bool(imports)
        place = f"{name}: " if name else ""
        lines += [f"{place}{line}" for line in what_it_would_do(calls, imports, found.code)]
    return [*lines, *scan.troubles[:SHOWN_NAMES]] if unsafe else []
