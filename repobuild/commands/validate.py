"""``repobuild validate``: a repository checked again."""

from __future__ import annotations

from pathlib import Path

import click

from repobuild.commands._options import GivenPath, json_option, progress_options
from repobuild.console import Progress, display, table
from repobuild.envelope import Dialogue


@click.command()
@click.argument("repository", type=GivenPath())
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@progress_options
@json_option
@click.pass_obj
def validate(
    talk: Dialogue, /, repository: Path, models: tuple[str, ...], progress: Progress, quiet: bool
) -> None:
    """Check a REPOSITORY again: its files against its records, and its answers on the bundled server.

    Every version is served from a copy and has to answer its golden rows as it did when it was built. The
    repository is not changed. The exit status is 3 when files or records are not as they were built, and 8
    when an answer differs.
    """
    from repobuild.console import Collecting
    from repobuild.validating import validate as check

    with display(progress, quiet=quiet) as shown:
        found = check(repository, models, Collecting(shown, talk.notes))
    talk.result = found.to_dict()
    talk.say(table([(f.place, f.about, f.outcome, f.detail) for f in found.findings]))
    error = found.error()
    counts = ", ".join(f"{sum(f.outcome == o for f in found.findings)} {o}" for o in ("pass", "fail", "skip"))
    talk.say(f"{'FAILED' if error else 'PASSED'} {repository}: {counts}")
    if error is not None:
        raise error
