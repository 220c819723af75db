"""``repobuild convert``: the main job."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Self

import click

from repobuild.commands._options import (
    json_option,
    progress_options,
    repository_option,
    setting_options,
    settings_of,
    trust_option,
)
from repobuild.console import Progress
from repobuild.envelope import Dialogue
from repobuild.errors import RepobuildError, from_oserror


@click.command()
@click.argument("model", type=click.Path(path_type=Path), metavar="RECIPE_OR_MODEL")
@repository_option(required=True, text="Triton model repository to build into; made if it does not exist.")
@trust_option
@setting_options
@click.option(
    "--report",
    "report_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report as JSON here, also when the build is refused.",
)
@progress_options
@json_option
@click.pass_obj
def convert(
    talk: Dialogue,
    /,
    model: Path,
    repository: Path,
    trust: tuple[str, ...],
    report_file: Path | None,
    progress: Progress,
    quiet: bool,
    **given: Any,
) -> None:
    """Convert a trained model into a Triton model repository.

    RECIPE_OR_MODEL is a recipe file, a folder that holds a recipe.yaml, or a model file alone, for which
    --samples names the rows. The model is exported to ONNX, compared with the original on the samples,
    written as a model version with config.pbtxt and warm-up samples, and proven on the bundled server.
    The repository changes last, in one step.
    """
    from repobuild.build import Order, Refused
    from repobuild.console import Collecting, closing_table, display
    from repobuild.pipeline import convert as build
    from repobuild.recipe.implied import pointed, wanted
    from repobuild.sources.interface import Trust

    with _ReportFile(report_file) as written:
        settings = settings_of(model, given)
        try:
            want = wanted(model, settings)
            for note in want.notes:
                talk.note(note)
            order = Order(want.recipe, repository, Trust(frozenset(trust)))
            with display(progress, quiet=quiet) as shown:
                report = build(order, Collecting(shown, talk.notes))
        except Refused as refused:
            error = pointed(refused.error, settings)
            talk.result = refused.report.to_dict()
            written.refused(error, refused.report.to_dict())
            raise error from refused
        except RepobuildError as error:
            written.refused(error, {"format": 1})
            raise
        written.document = report.to_dict()
    talk.result = {**report.to_dict(), "changed": report.changed, "repository": str(repository)}
    talk.say(closing_table(report, str(repository)))


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
