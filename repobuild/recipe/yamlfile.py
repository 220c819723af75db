"""Reads a YAML file into plain values and the line of every key path."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from repobuild.errors import Evidence, InputInvalid, from_oserror

KeyPath: TypeAlias = tuple[str | int, ...]
MAX_BYTES = 1 << 20
MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A YAML file as plain dicts, lists, strings, numbers and booleans.

    Attributes:
        value: The document.
        lines: 1-based line of every key and list item.
        digest: sha256 of the file, hexadecimal.
    """

    value: Any
    lines: Mapping[KeyPath, int]
    digest: str


def read_yaml(path: Path) -> YamlDocument:
    """Read a YAML 1.2 file of at most 1 MiB without tags, anchors or aliases.

    Raises:
        InputInvalid: It is missing, too large, not UTF-8 or not such YAML; the line is named.
        EnvironmentLacking: It cannot be read.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    data = _read_bytes(path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise InputInvalid(
            "recipe-not-text",
            "the recipe is not UTF-8 text",
            (Evidence(str(problem), file=str(path)),),
            "a recipe is a YAML file; is this the model itself?",
        ) from None
    try:
        _refuse_references(text, path)
        tree = YAML(typ="rt", pure=True).load(text)
        lines: dict[KeyPath, int] = {(): 1}
        value = _plain(tree, (), lines)
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        raise InputInvalid(
            "recipe-not-yaml",
            "the recipe is not valid YAML",
            (
                Evidence(
                    str(problem.problem or problem).strip(),
                    file=str(path),
                    line=mark.line + 1 if mark else None,
                ),
            ),
            "mend the line; keys are indented with blanks, never tabs",
        ) from None
    except (YAMLError, RecursionError, ValueError) as problem:
        raise InputInvalid(
            "recipe-not-yaml",
            "the recipe is not valid YAML",
            (Evidence(str(problem).strip() or type(problem).__name__, file=str(path)),),
            "see the format in docs/recipes.md",
        ) from None
    return YamlDocument(value, lines, hashlib.sha256(data).hexdigest())


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputInvalid(
            "recipe-missing",
            "there is no such recipe",
            (Evidence("no such file", file=str(path)),),
            "name a recipe.yaml, or the folder that holds one",
        ) from None
    except OSError as problem:
        raise from_oserror(problem, "reading the recipe") from problem
    if len(data) > MAX_BYTES:
        raise InputInvalid(
            "recipe-too-large",
            "the recipe is larger than 1 MiB",
            (Evidence(f"more than {MAX_BYTES} bytes", file=str(path)),),
            "a recipe is a short YAML file; is this the model itself?",
        )
    return data


def _refuse_references(text: str, path: Path) -> None:
    found = not_plain(text)
    if found is not None:
        what, line = found
        raise InputInvalid(
            "recipe-not-plain",
            f"the recipe uses {what}",
            (Evidence(f"{what} is not allowed here", file=str(path), line=line),),
            "write the value out",
        )


def not_plain(text: str) -> tuple[str, int] | None:
    """The first thing in a YAML text that no recipe needs, and its line.

    Anchors, aliases and merges can make a small file huge, deep nesting makes it slow, and tags make objects.

    Raises:
        YAMLError: It is no YAML.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent

    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        tag = getattr(event, "tag", None)
        if depth > MAX_DEPTH:
            what = f"nesting of more than {MAX_DEPTH} levels"
        elif isinstance(event, AliasEvent) or (isinstance(event, NodeEvent) and event.anchor):
            what = "an anchor or alias"
        elif tag:
            what = f"the tag {tag}"
        elif getattr(event, "value", None) == "<<" and not event.style:
            what = "the merge key <<"
        else:
            continue
        return what, event.start_mark.line + 1
    return None


def _plain(node: Any, at: KeyPath, lines: dict[KeyPath, int]) -> Any:
    if isinstance(node, dict):
        plain: dict[str, Any] = {}
        for key, child in node.items():
            name = key if isinstance(key, str) else str(key)
            here = (*at, name)
            lines[here] = node.lc.key(key)[0] + 1  # type: ignore[attr-defined]
            plain[name] = _plain(child, here, lines)
        return plain
    if isinstance(node, list):
        for index in range(len(node)):
            lines[*at, index] = node.lc.item(index)[0] + 1  # type: ignore[attr-defined]
        return [_plain(child, (*at, index), lines) for index, child in enumerate(node)]
    for scalar in (bool, int, float, str):
        if isinstance(node, scalar):
            return scalar(node)
    return node
