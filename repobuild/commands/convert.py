"""``repobuild convert``: the main job."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Self

import click

from repobuild.errors import RepobuildError, from_oserror

TRUST_KINDS = ("pickle", "module", "torchscript")


class _RepositoryPath(click.ParamType[Path]):
    """A path; an empty one, as an unset variable gives, is refused."""

    name = "folder"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Turn the word into a path."""
        if not str(value).strip():
            self.fail("the path is empty", param, ctx)
        return Path(str(value))


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option(
    "-r",
    "--repository",
    type=_RepositoryPath(),
    required=True,
    help="Triton model repository to build into; made if it does not exist.",
)
@click.option(
    "--trust",
    multiple=True,
    type=click.Choice(TRUST_KINDS),
    help="Vouch for a kind of file that runs code when it is loaded. May be repeated.",
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report as JSON here, also when the build is refused.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
def convert(
    recipe: Path, repository: Path, trust: tuple[str, ...], report_file: Path | None, quiet: bool
) -> None:
    """Convert the model that RECIPE names into a Triton model repository.

    RECIPE is a recipe file, or a folder that holds a recipe.yaml. The model is exported to ONNX, compared
    with the original on the recipe's samples, written as a model version with config.pbtxt and warm-up
    samples, and proven on the bundled server. The repository changes last, in one step.
    """
    from repobuild.build import Order, Refused
    from repobuild.console import PlainLines, closing_table
    from repobuild.pipeline import convert as build
    from repobuild.recipe.load import load_recipe
    from repobuild.sources.interface import Trust

    with _ReportFile(report_file) as written:
        try:
            order = Order(load_recipe(recipe), repository, Trust(frozenset(trust)))
            report = build(order, PlainLines(quiet=quiet))
        except Refused as refused:
            written.refused(refused.error, refused.report.to_dict())
            raise refused.error from refused
        except RepobuildError as error:
            written.refused(error, {"format": 1})
            raise
        written.document = report.to_dict()
    click.echo(closing_table(report, str(repository)))


class _ReportFile:
    """The file of ``--report``: claimed before the build, so that a bad path costs nothing.

    Leaving writes it, whatever happened. If that fails while another error is on its way, the failure is
    told beside it and does not take its place.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._fresh = file and file.with_name(f".{file.name}.{os.getpid()}")
        self.document: dict[str, object] = {"format": 1, "outcome": "failed"}

    def refused(self, error: RepobuildError, findings: dict[str, object]) -> None:
        """Note why there is no result."""
        self.document = {**findings, "outcome": "refused", "error": error.to_dict()}

    def __enter__(self) -> Self:
        if self._fresh is not None:
            try:
                self._fresh.touch(exist_ok=False)
            except OSError as problem:
                raise from_oserror(problem, f"opening the report file {self._file}") from problem
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._fresh is None or self._file is None:
            return
        try:
            text = json.dumps(self.document, indent=1, sort_keys=True)
            self._fresh.write_text(text + "\n", encoding="utf-8")
            self._fresh.replace(self._file)
        except OSError as problem:
            failure = from_oserror(problem, f"writing the report file {self._file}")
            with contextlib.suppress(OSError):
                self._fresh.unlink()
            if kind is None:
                raise failure from problem
            click.echo(failure.render(), err=True)
