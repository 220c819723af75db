"""``repobuild lint``: check model repositories offline."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import click

from repobuild.commands._results import ResultFile, output_is_input
from repobuild.errors import InputInvalid
from repobuild.lint.finding import Severity
from repobuild.lint.rules import RULES, as_text


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--target", metavar="YY.MM", help="Triton release to check against; default: the newest known.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "sarif"]), default="text", show_default=True
)
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write here instead of printing."
)
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@click.option("--ignore", multiple=True, metavar="RULE", help="Leave a rule out. May be repeated.")
@click.option("--rules", is_flag=True, help="List every rule with its meaning.")
@click.pass_context
def lint(
    ctx: click.Context,
    paths: tuple[Path, ...],
    target: str | None,
    form: str,
    output: Path | None,
    strict: bool,
    ignore: tuple[str, ...],
    rules: bool,
) -> None:
    """Check Triton model repositories, written by hand or not, without a server.

    PATH is a model repository, the folder of one model, or a config.pbtxt.
    """
    if rules:
        click.echo(as_text())
        return
    if not paths:
        raise click.UsageError("Missing argument 'PATH...'.")
    for name in ignore:
        if name not in RULES:
            near = difflib.get_close_matches(name, RULES, 1)
            also = f"; did you mean '{near[0]}'?" if near else "; --rules lists them"
            raise click.BadParameter(f"no rule '{name}'{also}", param_hint="--ignore")
    from repobuild.lint import formats
    from repobuild.lint.run import lint as check
    from repobuild.releases import newest, release

    against = release(target) if target else newest()
    if output is not None:
        _refuse_linted(output, paths)
    results = [check(path, against, ignore) for path in paths]
    writers = {"text": formats.as_text, "json": formats.as_json, "sarif": formats.as_sarif}
    _tell(writers[form](results, against), output)
    counts = formats.count(results)
    if counts[Severity.ERROR] or (strict and counts[Severity.WARNING]):
        ctx.exit(InputInvalid.exit_code)


def _tell(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    with ResultFile(output, "findings", lambda: text):
        pass


def _refuse_linted(output: Path, paths: tuple[Path, ...]) -> None:
    """A file of what is being checked is not to be replaced by what was found in it."""
    real = Path(os.path.realpath(output))
    for path in paths:
        linted = Path(os.path.realpath(path))
        if real.is_file() and linted in (real, *real.parents):
            raise output_is_input(f"{output} is a file of what is being checked", output)
