"""Recipes made of a command line: keys that words set over a recipe file, or over a model file alone."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from repobuild.errors import Evidence, InputInvalid, RepobuildError, UsageProblem
from repobuild.recipe.load import find_recipe, key_text, load_recipe, recipe_from
from repobuild.recipe.types import Recipe
from repobuild.recipe.yamlfile import KeyPath, YamlDocument, not_plain, read_yaml

RECIPE_SUFFIXES = (".yaml", ".yml")
COMMAND_LINE = "command line"
LONGEST_NAME = 128
FALLBACK_NAME = "model"
_PART = re.compile(r'"(?P<quoted>[^"]+)"|(?P<plain>[^.\[\]"]+)|\[(?P<index>\d{1,4})\]')


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a recipe that something else than the recipe file sets.

    Attributes:
        at: Key path in the document.
        value: Its plain value.
        word: The word that set it, such as ``--set export.opset=18``; mistakes point at it.
    """

    at: KeyPath
    value: Any
    word: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A recipe and what was decided to get it.

    Attributes:
        recipe: The recipe.
        notes: What a reader should know, such as a name that was changed.
    """

    recipe: Recipe
    notes: tuple[str, ...] = ()


def parse_setting(text: str) -> Setting:
    """Read ``key.path=value``, the value as YAML; ``outputs[0].from`` and ``"a name"`` work as parts.

    Raises:
        UsageProblem: ``setting-malformed``: it is not of that form.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    key, equals, value = text.partition("=")
    if not equals:
        raise _malformed(text, "there is no '='")
    at = _key_path(key.strip())
    if at is None:
        raise _malformed(text, f"'{key}' is not a path of keys")
    try:
        refused = not_plain(value)
        if refused is not None:
            raise _malformed(text, f"the value uses {refused[0]}")
        plain = YAML(typ="safe", pure=True).load(value)
        json.dumps(plain)
    except (YAMLError, ValueError, TypeError, RecursionError) as problem:
        raise _malformed(text, f"the value is not plain YAML: {str(problem).splitlines()[0]}") from None
    return Setting(at, plain, f"--set {text}")


def is_recipe_path(path: Path) -> bool:
    """Whether a path names a recipe, or a folder of one, rather than a model file."""
    return path.is_dir() or path.suffix.lower() in RECIPE_SUFFIXES


def wanted(path: Path, settings: Sequence[Setting] = ()) -> Wanted:
    """The recipe that a path and settings make.

    Args:
        path: A recipe file, a folder that holds a ``recipe.yaml``, or a model file.
        settings: Keys set over the recipe; those of a later setting win.

    Raises:
        InputInvalid: The recipe is not usable; mistakes in settings point at their words.
        EnvironmentLacking: The recipe cannot be read.
    """
    if is_recipe_path(path):
        if not settings:
            return Wanted(load_recipe(path))
        file = find_recipe(path)
        read = read_yaml(file)
        return Wanted(_checked(read.value, read.lines, file, settings))
    return wanted_for_model(path, settings)


def wanted_for_model(path: Path, settings: Sequence[Setting] = ()) -> Wanted:
    """The recipe for a model file alone, whatever its name is.

    Args:
        path: The model file, which need not be there.
        settings: Keys of the recipe.

    Raises:
        InputInvalid: The recipe is not usable; mistakes in settings point at their words.
    """
    given = {s.at for s in settings}
    document: dict[str, Any] = {"source": {"path": str(path)}}
    notes: tuple[str, ...] = ()
    if ("name",) not in given:
        document["name"] = name = safe_name(_stem(path))
        if name != _stem(path):
            told = (
                f"the model is named '{name}', since its file's name is not safe as a model's; --name decides"
            )
            notes = (told,)
    return Wanted(made_recipe(document, settings), notes)


def made_recipe(document: Mapping[str, Any], settings: Sequence[Setting] = ()) -> Recipe:
    """A recipe without a file; its paths are relative to the working directory.

    Args:
        document: The recipe as plain values.
        settings: Keys set over it.

    Raises:
        InputInvalid: ``recipe-invalid``; mistakes in settings point at their words.
    """
    recipe = _checked(document, {(): 1}, Path(COMMAND_LINE), settings)
    return dataclasses.replace(recipe, file=None, lines=MappingProxyType({}))


def pointed(error: RepobuildError, settings: Iterable[Setting]) -> RepobuildError:
    """The same error with evidence on keys that settings made pointing at the words that made them."""
    by_key = {key_text(s.at): s.word for s in settings}
    shown = tuple(_at_word(item, by_key) for item in error.evidence)
    if shown == error.evidence:
        return error
    moved = type(error)(error.code, error.message, shown, error.hint)
    moved.__cause__ = error.__cause__
    return moved.with_traceback(error.__traceback__)


def document_digest(document: Any) -> str:
    """The sha256 that stands for a recipe that is not a file, hexadecimal: that of its JSON text."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def safe_name(text: str) -> str:
    """A model name that Triton, a shell, a bucket and any file system can bear, made from any text."""
    name = re.sub(r"[^A-Za-z0-9_.\-]+", "_", text)
    name = name if name == text else name.strip("_")
    return re.sub(r"\.\.+", ".", name).lstrip("-.")[:LONGEST_NAME].rstrip(".") or FALLBACK_NAME


def _stem(path: Path) -> str:
    return path.name[: -len(path.suffix)] if path.suffix else path.name


def _checked(value: Any, lines: Mapping[KeyPath, int], file: Path, settings: Sequence[Setting]) -> Recipe:
    merged = copy.deepcopy(value) if isinstance(value, Mapping) else value
    wrong = [e for s in settings if (e := _apply(merged, s)) is not None]
    if wrong:
        raise InputInvalid(
            "recipe-invalid",
            "a setting does not fit the recipe",
            tuple(wrong),
            "the format is described in docs/recipes.md",
        )
    document = YamlDocument(merged, lines, document_digest(merged))
    try:
        return recipe_from(document, file)
    except RepobuildError as error:
        raise _without_line(pointed(error, settings)) from None


def _without_line(error: RepobuildError) -> RepobuildError:
    """The command line has no lines."""
    shown = tuple(dataclasses.replace(e, line=None) if e.file == COMMAND_LINE else e for e in error.evidence)
    return type(error)(error.code, error.message, shown, error.hint)


def _apply(document: Any, setting: Setting) -> Evidence | None:
    """Set one key in place; what is on the way is made where it is not there."""
    place = document
    for depth, part in enumerate(setting.at):
        last = depth == len(setting.at) - 1
        here = key_text(setting.at[: depth + 1])
        if isinstance(part, int):
            if not isinstance(place, list):
                return Evidence("the key before it is not a list", file=setting.word, key=here)
            if part > len(place):
                return Evidence(f"the list has {len(place)} items", file=setting.word, key=here)
            if part == len(place):
                place.append(None)
        elif not isinstance(place, dict):
            return Evidence("the key before it is not a mapping", file=setting.word, key=here)
        if last:
            place[part] = setting.value
            return None
        follows: Any = [] if isinstance(setting.at[depth + 1], int) else {}
        if isinstance(part, int):
            if place[part] is None:
                place[part] = follows
        elif place.get(part) is None:
            place[part] = follows
        place = place[part]
    return None


def _at_word(item: Evidence, by_key: Mapping[str, str]) -> Evidence:
    if item.key is None:
        return item
    for key in sorted(by_key, key=len, reverse=True):
        if _within(item.key, key) or _within(key, item.key):
            return dataclasses.replace(item, file=by_key[key], line=None)
    return item


def _within(key: str, outer: str) -> bool:
    return key == outer or key.startswith((f"{outer}.", f"{outer}["))


def _key_path(text: str) -> KeyPath | None:
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if parts and text[at] == ".":
            at += 1
        found = _PART.match(text, at)
        if found is None or (found["index"] and not parts):
            return None
        parts.append(int(found["index"]) if found["index"] else (found["quoted"] or found["plain"]).strip())
        at = found.end()
        if at < len(text) and text[at] not in ".[":
            return None
        if text[at:] == ".":
            return None
    return tuple(parts) or None


def _malformed(text: str, why: str) -> UsageProblem:
    return UsageProblem(
        "setting-malformed",
        "--set takes key.path=value",
        (Evidence(why, file=f"--set {text}"),),
        "for instance --set export.opset=18 or --set 'outputs[0].name=score'",
    )
