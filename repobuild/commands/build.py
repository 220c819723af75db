"""``repobuild build``: every recipe below a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from repobuild.commands._options import (
    GivenPath,
    changes_options,
    json_option,
    junit_option,
    progress_options,
    repository_option,
    trust_option,
)
from repobuild.commands._results import ResultFile
from repobuild.console import Progress, table
from repobuild.envelope import AlreadyTold, Dialogue, annotate
from repobuild.errors import printable

if TYPE_CHECKING:
    from repobuild.many import Built


@click.command()
@click.argument("folder", type=GivenPath())
@repository_option(required=True, text="Triton model repository to build into; made if it does not exist.")
@trust_option
@changes_options
@click.option(
    "--keep-going/--fail-fast",
    default=True,
    help="After a failure, go on with the other recipes (the default), or skip them.",
)
@junit_option
@progress_options
@json_option
@click.pass_obj
def build(
    talk: Dialogue,
    /,
    folder: Path,
    repository: Path,
    trust: tuple[str, ...],
    update_config: bool,
    allow_schema_change: bool,
    keep_going: bool,
    junit: Path | None,
    progress: Progress,
    quiet: bool,
) -> None:
    """Convert every recipe below FOLDER into one Triton model repository.

    Recipes are files called recipe.yaml or *.recipe.yaml. They are built one after another in the order of
    their paths; each changes the repository in one step of its own. The exit status is that of the first
    failure.
    """
    from repobuild.build import Changes
    from repobuild.ci import append_summary, as_junit
    from repobuild.console import Collecting, display
    from repobuild.many import build_all, find_recipes, load_recipes
    from repobuild.sources.interface import Trust

    found = load_recipes(find_recipes(folder))
    inputs = [path for item in found for path in (item.file, *(item.recipe.files() if item.recipe else ()))]
    done: list[Built] = []
    still = quiet or progress == "quiet"
    with (
        ResultFile(junit, "JUnit file", lambda: as_junit(done), inputs),
        display(progress, quiet=quiet) as shown,
    ):
        watch = Collecting(shown, talk.notes)
        for built in build_all(
            found,
            repository,
            Trust(frozenset(trust)),
            watch,
            fail_fast=not keep_going,
            beginning=lambda item: None if still else click.echo(printable(str(item.file)), err=True),
            changes=Changes(update_config, allow_schema_change),
        ):
            done.append(built)
            talk.result = {"repository": str(repository), "models": [b.to_dict() for b in done]}
            if built.error is not None:
                click.echo(built.error.render(), err=True)
                annotate(built.error)
    trouble = append_summary(done)
    if trouble:
        talk.note(trouble)
    talk.say(table([(str(b.file), b.model or "-", b.result, _detail(b)) for b in done]))
    first = next((b.error for b in done if b.error is not None), None)
    counts = ", ".join(
        f"{sum(b.result == r for b in done)} {r}"
        for r in ("new", "updated", "unchanged", "failed", "skipped")
    )
    talk.say(f"{'FAILED' if first else 'PASSED'} {len(done)} recipes: {counts}")
    if first is not None:
        raise AlreadyTold(first)


def _detail(built: Built) -> str:
    if built.error is not None:
        return f"error[{built.error.code}]"
    return f"version {built.report.version}" if built.report else ""
