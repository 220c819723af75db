"""``repobuild plan``: what convert or build would do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from repobuild.commands._options import (
    GivenPath,
    json_option,
    repository_option,
    setting_options,
    settings_of,
    trust_option,
)
from repobuild.console import table
from repobuild.envelope import AlreadyTold, Dialogue, annotate

if TYPE_CHECKING:
    from repobuild.planning import Plan

SHOWN = 12


@click.command()
@click.argument("model", type=GivenPath(), metavar="RECIPE_OR_MODEL")
@repository_option(required=False, text="Repository that would be built into.")
@trust_option
@setting_options
@json_option
@click.pass_obj
def plan(
    talk: Dialogue,
    /,
    model: Path,
    repository: Path | None,
    trust: tuple[str, ...],
    **given: Any,
) -> None:
    """Tell what convert or build would do and why, running nothing of the model.

    RECIPE_OR_MODEL is what convert takes, or a folder of recipes as build takes it. The exit status is that
    with which the build would stop, as far as that can be known yet.
    """
    from repobuild.planning import make_plan
    from repobuild.recipe.implied import pointed
    from repobuild.sources.interface import Trust

    settings = settings_of(model, given)
    recipes, notes, broken = _recipes(model, settings)
    for note in notes:
        talk.note(note)
    vouched = Trust(frozenset(trust))
    plans = [make_plan(recipe, repository, vouched) for recipe in recipes]
    talk.result = {"plans": [p.to_dict() for p in plans]}
    for made in plans:
        talk.say(table(list(_rows(made))))
    met = [*broken, *(p for made in plans for p in made.problems)]
    errors = [pointed(error, settings) for error in met]
    for error in errors:
        click.echo(error.render(), err=True)
        annotate(error)
    if errors:
        raise AlreadyTold(errors[0])


def _recipes(model: Path, settings: Any) -> tuple[list[Any], tuple[str, ...], list[Any]]:
    """The recipe, or all recipes of a folder that is none itself, with the errors of those unusable."""
    from repobuild.many import find_recipes, load_recipes
    from repobuild.recipe.implied import wanted
    from repobuild.recipe.load import find_recipe

    if model.is_dir() and not find_recipe(model).is_file() and not settings:
        found = load_recipes(find_recipes(model))
        return (
            [f.recipe for f in found if f.recipe is not None],
            (),
            [f.problem for f in found if f.problem is not None],
        )
    want = wanted(model, settings)
    return [want.recipe], want.notes, []


def _rows(made: Plan) -> Iterator[tuple[str, str]]:
    yield "model", made.model
    if made.recipe is not None:
        yield "recipe", made.recipe
    source = made.source
    if source is not None:
        yield (
            "source",
            f"{source.path} ({source.kind or 'kind unknown'}), sha256 {source.sha256 or 'unknown'}",
        )
        yield "trust", _trust(source)
        for key, value in source.facts.items():
            yield key, _shown(value)
    if made.samples is not None:
        columns = ", ".join(f"{name} {holds}" for name, holds in made.samples.columns[:SHOWN])
        more = len(made.samples.columns) - SHOWN
        also = f", and {more} more" if more > 0 else ""
        yield "samples", f"{made.samples.path}: {made.samples.rows} rows of {columns}{also}"
    yield "targets", ", ".join(made.targets)
    yield "release", f"Triton {made.release}"
    if made.place is not None:
        have = ", ".join(map(str, made.place.versions)) or "none"
        yield (
            "version",
            f"{made.place.version} in {made.place.repository}, unless the latest is equal ({have})",
        )
        yield "config", made.place.config
    if made.problems:
        yield "outcome", f"would stop with error[{made.problems[0].code}]"
    else:
        yield "outcome", "load, export, compile, check, stage, verify on the bundled server, publish"


def _trust(source: Any) -> str:
    if source.pinned:
        return "the recipe pins this very file"
    if not source.needs:
        return "none is needed"
    given = ", ".join(source.given) or "nothing"
    return f"needs --trust {' --trust '.join(source.needs)}; given is {given}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_shown(v)}" for k, v in value.items()) or "none"
    if isinstance(value, list | tuple):
        more = len(value) - SHOWN
        return ", ".join(map(str, value[:SHOWN])) + (f", and {more} more" if more > 0 else "") or "none"
    return str(value)
