"""A configuration as a text: what is wrong with it before it means anything."""

from __future__ import annotations

from typing import Any

from repobuild.lint.files import Entry
from repobuild.lint.finding import Findings
from repobuild.lint.positions import Positions, scan
from repobuild.pbtxt import Refused
from repobuild.triton import as_triton_reads, model_config


def read_text(data: bytes, entry: Entry, findings: Findings) -> tuple[Any, Positions] | None:
    """The ModelConfig message of a text, and where its fields stand; ``None`` if it does not parse."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data[: problem.start].count(b"\n") + 1
        findings.add("config-not-text", f"byte {problem.start} is no UTF-8", entry.relative, line)
        text = data.decode("utf-8", "replace")
    try:
        read = as_triton_reads(text)
    except Refused as problem:
        findings.add("config-unreadable", str(problem), entry.relative, problem.line, problem.column)
        return None
    message = _parsed(read.text, entry, findings)
    if message is None:
        return None
    for line in read.garbled:
        findings.add("config-not-text", "the escapes of a string make no UTF-8", entry.relative, line)
    positions = scan(read.text)
    if positions.refused is not None:
        place, odd = positions.refused
        said = f"character U+{ord(odd):04X} between the fields"
        findings.add("config-character", said, entry.relative, place.line, place.column)
    _keys_once(message.DESCRIPTOR, positions, (), entry.relative, findings)
    return message, positions


def _parsed(text: str, entry: Entry, findings: Findings) -> Any:
    from google.protobuf import text_format

    try:
        return text_format.Parse(text, model_config())
    except text_format.ParseError as problem:
        line, column = problem.GetLine(), problem.GetColumn()
        said = str(problem).split(" : ", 1)[-1]
        findings.add("config-unreadable", said, entry.relative, line, column)
    except (RecursionError, ValueError, OverflowError, MemoryError) as problem:
        said = "it is nested too deeply" if isinstance(problem, RecursionError) else str(problem)
        findings.add("config-unreadable", said, entry.relative, 1)
    return None


def _keys_once(
    descriptor: Any, positions: Positions, at: tuple[str | int, ...], file: str, findings: Findings
) -> None:
    for item in descriptor.fields:
        if item.message_type is None:
            continue
        here = (*at, item.name)
        if item.message_type.GetOptions().map_entry:
            seen: set[str] = set()
            for key, entry in positions.entries(*here):
                if key in seen:
                    place = positions.place(*entry)
                    line, column = (place.line, place.column) if place else (1, None)
                    findings.add(
                        "config-key-twice", f"{item.name} has the key '{key}' twice", file, line, column
                    )
                seen.add(key)
        for index in range(positions.count(*here)):
            inner = item.message_type
            if inner.GetOptions().map_entry:
                value = inner.fields_by_name["value"].message_type
                if value is not None:
                    _keys_once(value, positions, (*here, index, "value"), file, findings)
            else:
                _keys_once(inner, positions, (*here, index), file, findings)
