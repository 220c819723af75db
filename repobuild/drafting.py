"""Drafts a recipe for a model file, of what the file says by itself and what the loaded model says."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from repobuild.drafting_modules import module_classes
from repobuild.errors import Evidence, InputInvalid, SourceUntrusted, from_oserror, printable
from repobuild.interrupts import import_whole
from repobuild.loaded import Loaded
from repobuild.recipe.example import example_sections, section_lines
from repobuild.recipe.implied import Setting, wanted_for_model
from repobuild.recipe.load import load_recipe
from repobuild.recipe.types import Recipe
from repobuild.releases import newest
from repobuild.samples.read import read_table
from repobuild.sources.find import open_source
from repobuild.sources.interface import RowsSource, Source, TensorSource, Trust
from repobuild.streams import is_stream, write_stream
from repobuild.templates import render
from repobuild.tensor_models.load import LoadedTensors, load_tensors
from repobuild.tensors import TensorSpec

TEMPLATE = "recipe.yaml.j2"
SHOWN = 12
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./")


@dataclass(frozen=True, slots=True)
class Item:
    """A list item of the draft, and what is said beside it."""

    text: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A recipe that was drafted.

    Attributes:
        text: The recipe file.
        name: Model name in it.
        model: What the model is, ``None`` when it was not loaded.
        notes: What a reader should know.
    """

    text: str
    name: str
    model: str | None
    notes: tuple[str, ...]


def draft_recipe(
    model: Path, samples: Path | None, trust: Trust, home: Path, name: str | None = None
) -> Draft:
    """Draft a recipe.

    Args:
        model: The model file.
        samples: Its sample file, ``None`` where there is none yet.
        trust: What the user vouches for; the model is loaded only if that suffices.
        home: Folder that the recipe will lie in; its paths are relative to that.
        name: Model name, ``None`` to make one from the file's.

    Raises:
        InputInvalid: The file is no model, or the samples do not fit it.
        EnvironmentLacking: A file cannot be read, or loading fails.
    """
    settings = [Setting(("samples",), str(samples.absolute()), f"--samples {samples}")] if samples else []
    if name is not None:
        settings.append(Setting(("name",), name, f"--name {name}"))
    want = wanted_for_model(model, settings)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="repobuild-init-") as folder,
            open_source(want.recipe, Path(folder)) as source,
        ):
            found, notes, lacks_module = _described(source, want.recipe, trust)
            known: dict[str, Any] = getattr(source, "known_before", dict)()
            digest = getattr(source, "digest", "")
    except OSError as problem:
        raise from_oserror(problem, "reading the model file") from problem
    facts = found.facts if found else known
    text = render(
        TEMPLATE,
        {
            "name": _scalar(want.recipe.name),
            "path": _scalar(_relative(model, home)),
            "kind": _scalar(facts["kind"]) if facts.get("kind") else None,
            "sha256": digest,
            "source_options": section_lines(
                "source", {"path", "kind", "sha256", *(("module",) if lacks_module else ())}
            ),
            "findings": _findings(found, facts),
            "module": _module(model, home) if lacks_module else (),
            "samples": _scalar(_relative(samples, home)) if samples else None,
            "samples_about": "real rows; checks, warm-up and golden answers are made of them",
            "inputs": [_input(s, typed=isinstance(found, LoadedTensors)) for s in found.inputs]
            if found
            else [],
            "outputs": _outputs(facts) if found else [],
            "sections": example_sections(
                {"name", "source", "samples", *(("inputs", "outputs") if found else ())},
                {"target.triton": newest().name},
            ),
        },
    )
    return Draft(text, want.recipe.name, found.model if found else None, (*want.notes, *notes))


def write_draft(draft: Draft, to: Path, *, force: bool = False) -> None:
    """Write a draft once it is known to load.

    Args:
        draft: The draft.
        to: The recipe file.
        force: Replace a file that is there.

    Raises:
        InputInvalid: ``recipe-exists``.
        EnvironmentLacking: The file system refuses.
    """
    if force and is_stream(to):
        try:
            write_stream(to, draft.text)
        except OSError as problem:
            raise from_oserror(problem, f"writing {to}") from problem
        return
    if force:
        to = Path(os.path.realpath(to))
    fresh = to.with_name(f".{to.name}.{os.getpid()}.yaml")
    try:
        fresh.write_text(draft.text, encoding="utf-8")
        try:
            load_recipe(fresh)
            if force:
                fresh.replace(to)
            else:
                os.link(fresh, to)
        finally:
            fresh.unlink(missing_ok=True)
    except FileExistsError:
        raise InputInvalid(
            "recipe-exists",
            f"{to} is there already",
            (Evidence("not overwritten", file=str(to)),),
            "name another file with -o, or pass --force to replace it",
        ) from None
    except OSError as problem:
        raise from_oserror(problem, f"writing {to}") from problem


def _described(source: Source, recipe: Recipe, trust: Trust) -> tuple[Loaded | None, tuple[str, ...], bool]:
    """The loaded model where that is allowed, else why not; and whether its class has to be named."""
    table = read_table(recipe.samples, recipe.samples_given) if recipe.samples is not None else None
    try:
        source.vouch(trust)
    except SourceUntrusted:
        told = "the model was not loaded, so its inputs and outputs are left open; --trust loads it"
        return None, (told,), False
    except InputInvalid as problem:
        if problem.code != "module-needed":
            raise
        told = "the file holds weights alone: fill in source.module, the class that they belong to"
        return None, (told,), True
    import_whole(["numpy"])
    if source.takes == "tensors":
        loaded, samples = load_tensors(recipe, cast("TensorSource", source))
        return loaded, (*loaded.facts.get("notes", ()), *samples.notes), False
    layout = table.layout() if table is not None else None
    found = cast("RowsSource", source).describe(recipe, layout)
    return found, tuple(found.facts.get("notes", ())), False


def _module(model: Path, home: Path) -> tuple[str, ...]:
    """Lines of ``module:`` to fill in; the only module class beside the weights is a guess worth writing."""
    found = module_classes(model.parent)
    file, name = found[0] if len(found) == 1 else ("net.py", "Net")
    told = "a guess: the only module beside the weights" if len(found) == 1 else "fill in"
    more = [f"# {_comment(f'{f}: {n}')}" for f, n in found[:SHOWN]] if len(found) > 1 else []
    path = _relative(model.parent / file, home)
    return (
        f"module:  # {told}; its code is imported with --trust module",
        f"  file: {_scalar(path)}",
        f"  class: {_scalar(name)}",
        "  # kwargs: {hidden: 32}  # arguments of the class",
        *more,
    )


def _findings(found: Loaded | None, facts: dict[str, Any]) -> list[str]:
    """What is known of the model, as comments."""
    lines = [f"the model is {found.model}"] if found else ["the model was not loaded"]
    versions = facts.get("trained_with")
    if isinstance(versions, dict) and versions:
        lines.append(f"made with {', '.join(f'{k} {_listed(v)}' for k, v in versions.items())}")
    if not found and facts.get("imports"):
        lines.append(f"loading it imports {_listed(facts['imports'])}")
    return [_comment(line) for line in lines]


def _input(spec: TensorSpec, *, typed: bool) -> Item:
    """One input; ``typed`` where the model itself fixes the types of floats."""
    parts = [f"name: {_scalar(spec.name)}"]
    if typed or not spec.dtype.is_float:
        parts.append(f"dtype: {spec.dtype.value}")
    dims = spec.shape[1:]
    if all(d is not None for d in dims):
        parts.append(f"dims: [{', '.join(map(str, dims))}]")
    about = "dtype: FP32 or FP64; which one is measured when it is left out"
    measured = spec.dtype.is_float and not typed
    return Item(f"{{{', '.join(parts)}}}", about if measured else "")


def _outputs(facts: dict[str, Any]) -> list[Item]:
    answers = facts.get("answers")
    if not isinstance(answers, dict):
        return []
    classes = facts.get("classes")
    told = f"one of the classes {_listed(classes)}" if isinstance(classes, list) else ""
    wide = f"one column a class: {_listed(classes)}" if isinstance(classes, list) else ""
    labels = facts.get("labels", ())
    return [
        Item(
            f"{{name: {_scalar(name)}}}", _comment(told if name in labels else wide if "prob" in name else "")
        )
        for name in answers
    ]


def _relative(path: Path, home: Path) -> str:
    return os.path.relpath(path, home)


def _scalar(value: Any) -> str:
    """A value as YAML that every reader takes for this very text."""
    text = str(value)
    plain = text and set(text) <= PLAIN and text[0].isalpha() and text.lower() not in RESERVED
    return text if plain else json.dumps(text)


RESERVED = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def _listed(values: Any) -> str:
    if not isinstance(values, list | tuple):
        return str(values)
    more = len(values) - SHOWN
    return ", ".join(map(str, values[:SHOWN])) + (f" and {more} more" if more > 0 else "")


def _comment(text: str) -> str:
    """Text out of a model file as part of one comment line."""
    return printable(text).replace("\n", " ").replace("\t", " ")
