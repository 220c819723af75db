"""``repobuild inspect``: what a path holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from repobuild.commands._options import GivenPath, json_option
from repobuild.envelope import Dialogue

SHOWN = 40


@click.command()
@click.argument("path", type=GivenPath())
@json_option
@click.pass_obj
def inspect(talk: Dialogue, /, path: Path) -> None:
    """Tell what PATH holds: a model file, an engine, a model repository or the folder of one model.

    Nothing of it is run.
    """
    from repobuild.inspecting.modelfile import inspect_model
    from repobuild.inspecting.repository import inspect_folder

    found = inspect_folder(path) if path.is_dir() else inspect_model(path)
    talk.result = found.to_dict()
    talk.say("\n".join([f"{found.path}: {found.kind}", *_lines(found.facts, 1)]))
    for remark in found.remarks:
        talk.note(remark)


def _lines(value: Any, depth: int) -> Iterator[str]:
    """Facts as indented text: short values on the line of their key, long ones below it."""
    blank = "  " * depth
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for index, (key, child) in enumerate(pairs):
        if index == SHOWN:
            yield f"{blank}... {len(value) - SHOWN} more"
            return
        label = key if isinstance(value, dict) else "-"
        if isinstance(child, dict | list | tuple) and child and not _short(child):
            yield f"{blank}{label}:" if isinstance(value, dict) else f"{blank}{label}"
            yield from _lines(child, depth + 1)
        else:
            yield f"{blank}{label}{':' if isinstance(value, dict) else ''} {_text(child)}"


def _short(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    return not any(isinstance(v, dict) for v in inner) and len(_text(value)) <= 90


def _text(value: Any) -> str:
    if value is None or value in ([], {}, ()):
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(v) for v in value)}]"
    return str(value)
