"""Reads sample files: npy, npz, csv, tsv, parquet, jsonl."""

from __future__ import annotations

import csv
import json
import math
import re
import stat
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from repobuild.artifact import file_digest
from repobuild.errors import EnvironmentLacking, InputInvalid, evidence, from_oserror
from repobuild.samples.table import Column, Kind, Table
from repobuild.tensors import Array

INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,17})")
NUMBER = re.compile(r"[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|Infinity)")
NO_NUMBER = frozenset(("", "nan", "NaN", "NA", "N/A", "null", "None"))
"""Cells that are a missing number; in a column of text only the empty cell is missing."""
TRUTH = {"true": True, "false": False, "True": True, "False": False, "TRUE": True, "FALSE": False}
MAX_BYTES = 1 << 31


class Unreadable(Exception):
    """Raised by a reader for a file that is not of its format.

    Attributes:
        reason: What is wrong, in a few words.
        line: The line, 1-based, for formats of lines.
    """

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


def read_table(path: Path, given: str) -> Table:
    """Read a sample file by its ending.

    Args:
        path: The file.
        given: Its path as the recipe has it, for messages.

    Raises:
        InputInvalid: It is missing, of no known format, damaged, empty or ragged.
        EnvironmentLacking: It cannot be read, or the package for its format is not installed.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise unfit(
            f"samples in a {path.suffix or 'nameless'} file cannot be read",
            [f"{given} is none of {', '.join(READERS)}"],
            "save them in one of these formats",
        )
    try:
        found = path.stat()
    except OSError:
        found = None
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise unfit(
            f"{given} is no regular file",
            ["it is a folder" if stat.S_ISDIR(found.st_mode) else "it is a device, a pipe or a socket"],
            "name a file that holds the samples",
        )
    size = found.st_size if found is not None else 0
    if size > MAX_BYTES:
        raise unfit(
            f"{given} is larger than {MAX_BYTES >> 30} GiB",
            [f"{size} bytes"],
            "some hundred rows are enough; give the first ones",
        )
    try:
        columns, framed, named, notes = reader(path)
        digest = file_digest(path)
    except FileNotFoundError:
        raise unfit(
            f"there is no sample file {given}",
            ["no such file"],
            "paths in a recipe are relative to its folder, those on the command line to where you are",
        ) from None
    except Unreadable as problem:
        where = f"line {problem.line}: " if problem.line else ""
        raise unfit(
            f"{given} is not a readable {path.suffix} file",
            [f"{where}{problem.reason}"],
            "write the file again; see docs/recipes.md for the formats",
        ) from None
    except OSError as problem:
        raise from_oserror(problem, "reading the samples") from problem
    if not columns:
        raise unfit(f"{given} holds no columns", ["it is empty"], "save some hundred real rows")
    return Table(tuple(columns), framed, named, digest, tuple(notes))


def unfit(message: str, lines: Sequence[str], hint: str) -> InputInvalid:
    """The error for samples that do not do."""
    return InputInvalid("samples-unfit", message, evidence(lines), hint)


_Read = tuple[list[Column], bool, bool, list[str]]


def _numpy(path: Path) -> _Read:
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return [_array("samples", loaded)], False, False, []
        with loaded as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, MemoryError, KeyError, zipfile.BadZipFile) as problem:
        text = str(problem).splitlines()[0] if str(problem) else "damaged"
        if "Object arrays" in text:
            text = "it holds Python objects, which are pickles, and refused; save plain numbers or text"
        elif "allow_pickle" in text or "pickled" in text:
            text = "it does not begin as a NumPy file does"
        raise Unreadable(text) from None
    strange = next((name for name, array in arrays.items() if not isinstance(array, np.ndarray)), None)
    if strange is not None:
        raise Unreadable(f"its member '{strange}' is no array")
    return [_array(name, array) for name, array in arrays.items()], False, True, []


def _array(name: str, array: Array) -> Column:
    import numpy as np

    values = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
    return Column(name, Kind.of(values), values)


def _csv(path: Path, delimiter: str = ",") -> _Read:
    import numpy as np

    rows: list[list[str]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=delimiter, strict=True)
            header = next(reader, None)
            if header is None:
                raise Unreadable("it is empty")
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise Unreadable(f"{len(row)} cells, the header has {len(header)}", reader.line_num)
                rows.append(row)
    except UnicodeDecodeError as problem:
        raise Unreadable(f"it is not UTF-8 text: {problem.reason}") from None
    except csv.Error as problem:
        raise Unreadable(str(problem), reader.line_num) from None
    header, rows, notes = _without_index(header, rows)
    _distinct(header)
    _refuse_numbers(header)
    if not rows:
        raise Unreadable("it has a header and no rows")
    cells = np.array(rows, dtype=np.str_)
    return [_cells(name, cells[:, i]) for i, name in enumerate(header)], True, True, notes


def _tsv(path: Path) -> _Read:
    return _csv(path, "\t")


def _without_index(header: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]], list[str]]:
    """Drop the nameless first column that pandas writes for a frame's index."""
    if len(header) > 1 and header[0] == "":
        return header[1:], [r[1:] for r in rows], ["the nameless first column of the samples was left out"]
    return header, rows, []


def _refuse_numbers(header: Sequence[str]) -> None:
    """A header of numbers is a first row without one, unless it counts the columns, as pandas does."""
    if all(NUMBER.fullmatch(name) for name in header) and list(header) != list(map(str, range(len(header)))):
        raise Unreadable(
            f"its first line holds numbers ({', '.join(header[:4])}) where the column names should be", 1
        )


def _distinct(names: Sequence[str]) -> None:
    twice = sorted({n for n in names if list(names).count(n) > 1})
    if twice:
        raise Unreadable(f"the column name '{twice[0]}' occurs twice", 1)


def _cells(name: str, cells: Array) -> Column:
    """Type a column of text cells: numbers only where every cell is written as a number is.

    ``01234`` is text, since a number does not begin with a zero.
    """
    import numpy as np

    texts: list[str] = cells.tolist()
    filled = [t for t in texts if t not in NO_NUMBER]
    if filled and all(INTEGER.fullmatch(t) for t in filled):
        if len(filled) == len(texts):
            return Column(name, Kind.INTEGER, np.array([int(t) for t in texts], dtype=np.int64), raw=cells)
        return Column(name, Kind.NUMBER, _floats(texts), raw=cells)
    if filled and all(NUMBER.fullmatch(t) for t in filled):
        return Column(name, Kind.NUMBER, _floats(texts), raw=cells)
    if not filled and any(texts):
        return Column(name, Kind.NUMBER, _floats(texts), raw=cells)
    if texts and all(t in TRUTH for t in texts):
        return Column(name, Kind.BOOLEAN, np.array([TRUTH[t] for t in texts]), raw=cells)
    empty = cells == ""
    return Column(name, Kind.TEXT, cells, empty if empty.any() else None, raw=cells)


def _floats(texts: list[str]) -> Array:
    import numpy as np

    return np.array([math.nan if t in NO_NUMBER else float(t) for t in texts], dtype=np.float64)


def _jsonl(path: Path) -> _Read:
    rows: list[Mapping[str, Any]] = []
    names: dict[str, None] = {}
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line, object_pairs_hook=_object)
                except (ValueError, RecursionError) as problem:
                    raise Unreadable(str(problem) or "too deeply nested", number) from None
                if not isinstance(row, dict):
                    raise Unreadable("each line is one object, {column: value}", number)
                names.update(dict.fromkeys(row))
                rows.append(row)
    except UnicodeDecodeError as problem:
        raise Unreadable(f"it is not UTF-8 text: {problem.reason}") from None
    return [_values(name, [r.get(name) for r in rows]) for name in names], True, True, []


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, each of whose keys occurs once.

    Raises:
        ValueError: A key occurs twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key '{next(n for n in names if names.count(n) > 1)}' occurs twice")
    return found


def _values(name: str, values: list[Any]) -> Column:
    """Type a column of JSON or Python values, where ``None`` is a missing one."""
    import numpy as np

    present = [v for v in values if v is not None]
    kinds = {type(v) for v in present}
    if kinds == {str}:
        missing = np.array([v is None for v in values])
        texts = np.array([v or "" for v in values], dtype=np.str_)
        return Column(name, Kind.TEXT, texts, missing if missing.any() else None)
    if kinds == {bool} and len(present) == len(values):
        return Column(name, Kind.BOOLEAN, np.array(values))
    if kinds == {int} and len(present) == len(values) and all(-(2**63) <= v < 2**63 for v in values):
        return Column(name, Kind.INTEGER, np.array(values, dtype=np.int64))
    if kinds <= {int, float}:
        floats = [math.nan if v is None else float(v) for v in values]
        return Column(name, Kind.NUMBER, np.array(floats, dtype=np.float64))
    if kinds == {list} and len(present) == len(values):
        try:
            array = np.array(values)
        except ValueError:
            array = np.empty(0, dtype=object)
        if array.dtype.kind in "fiub" and array.ndim >= 2:
            return Column(name, Kind.of(array), array)
    described = ", ".join(sorted(t.__name__ for t in kinds))
    raise Unreadable(f"column '{name}' mixes {described}, or misses values that cannot be missing")


def _parquet(path: Path) -> _Read:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as problem:
        raise EnvironmentLacking(
            "pyarrow-missing",
            "reading parquet needs pyarrow, which is not installed",
            evidence([str(problem)]),
            "pip install 'repobuild[sklearn]'",
        ) from problem
    try:
        table = pq.read_table(path, use_threads=False)
    except (pa.ArrowException, ValueError) as problem:
        raise Unreadable(str(problem).splitlines()[0]) from None
    names = [n for n in table.column_names if not re.fullmatch(r"__index_level_\d+__", n)]
    _distinct(names)
    return [_arrow(name, table.column(name)) for name in names], True, True, []


def _arrow(name: str, column: Any) -> Column:
    import numpy as np
    import pyarrow as pa

    kind = column.type
    categories = None
    if pa.types.is_dictionary(kind):
        combined = column.combine_chunks()
        known = combined.dictionary.to_pylist()
        if all(isinstance(v, str) for v in known):
            categories = tuple(known)
        kind = kind.value_type
        column = combined.dictionary_decode()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        found = _values(name, column.to_pylist()) if column.null_count < len(column) else None
        texts = found or Column(name, Kind.TEXT, np.full(len(column), ""), np.ones(len(column), dtype=bool))
        return Column(name, Kind.TEXT, texts.values, texts.missing, categories=categories)
    if pa.types.is_boolean(kind) and not column.null_count:
        return Column(name, Kind.BOOLEAN, np.array(column.to_pylist(), dtype=bool))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        array = column.to_numpy()
        return Column(name, Kind.of(array), array)
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _values(name, column.to_pylist())
    return Column(name, Kind.OTHER, np.array([str(v) for v in column.to_pylist()], dtype=np.str_))


READERS: Mapping[str, Callable[[Path], _Read]] = {
    ".npy": _numpy,
    ".npz": _numpy,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
    ".jsonl": _jsonl,
}
"""Readers by the file's ending."""
