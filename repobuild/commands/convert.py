"""``repobuild convert``: the main job."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from repobuild.commands._options import (
    GivenPath,
    changes_options,
    json_option,
    junit_option,
    progress_options,
    repository_option,
    setting_options,
    settings_of,
    trust_option,
)
from repobuild.commands._results import ResultFile
from repobuild.console import Display, Progress, display
from repobuild.envelope import Dialogue
from repobuild.errors import RepobuildError

if TYPE_CHECKING:
    from repobuild.build import Changes
    from repobuild.many import Built
    from repobuild.recipe.implied import Setting


@click.command()
@click.argument("model", type=GivenPath(), metavar="RECIPE_OR_MODEL")
@repository_option(required=True, text="Triton model repository to build into; made if it does not exist.")
@trust_option
@changes_options
@setting_options
@click.option(
    "--bisect",
    is_flag=True,
    help="If a check fails, name the first node where the artifact departs from the exported graph.",
)
@click.option(
    "--report",
    "report_file",
    type=GivenPath("file", file=True),
    help="Write the report as JSON here, also when the build is refused.",
)
@junit_option
@progress_options
@json_option
@click.pass_obj
def convert(
    talk: Dialogue,
    /,
    model: Path,
    repository: Path,
    trust: tuple[str, ...],
    update_config: bool,
    allow_schema_change: bool,
    bisect: bool,
    report_file: Path | None,
    junit: Path | None,
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
    from repobuild.build import Changes
    from repobuild.ci import append_summary, as_junit
    from repobuild.console import closing_table
    from repobuild.recipe.load import RECIPE_FILE

    done: list[Built] = []
    if report_file and junit and os.path.realpath(report_file) == os.path.realpath(junit):
        raise click.UsageError("--report and --junit name the same file.")
    named = [Path(str(given[key])) for key in ("samples", "labels") if given.get(key)]
    inputs = [model, model / RECIPE_FILE, *named]
    with (
        ResultFile(report_file, "report file", lambda: _report_text(done), inputs) as report_result,
        ResultFile(junit, "JUnit file", lambda: as_junit(done), inputs) as junit_result,
    ):
        built = _build(
            talk,
            model,
            settings_of(model, given),
            repository,
            trust,
            display(progress, quiet=quiet),
            Changes(update_config, allow_schema_change),
            bisect,
            (report_result, junit_result),
        )
        done.append(built)
        trouble = append_summary(done)
        if trouble:
            talk.note(trouble)
        if built.report is not None:
            talk.result = {
                **built.report.to_dict(),
                "changed": built.report.changed,
                "new_version": built.report.new_version,
                "repository": str(repository),
            }
        if built.error is not None:
            raise built.error
    assert built.report is not None
    talk.say(closing_table(built.report, str(repository)))


def _build(
    talk: Dialogue,
    model: Path,
    settings: Sequence[Setting],
    repository: Path,
    trust: Iterable[str],
    shown: Display,
    changes: Changes,
    bisect: bool,
    results: Iterable[ResultFile],
) -> Built:
    """Build, with errors pointing at the words that caused them."""
    from repobuild.console import Collecting
    from repobuild.many import Found, build_one
    from repobuild.recipe.implied import pointed, wanted
    from repobuild.sources.interface import Trust

    try:
        want = wanted(model, settings)
    except RepobuildError as error:
        found = Found(model, None, error)
    else:
        found = Found(model, want.recipe)
        for result in results:
            result.spare(want.recipe.files())
        for note in want.notes:
            talk.note(note)
    with shown:
        collecting = Collecting(shown, talk.notes)
        built = build_one(found, repository, Trust(frozenset(trust)), collecting, changes, bisect=bisect)
    return built if built.error is None else replace(built, error=pointed(built.error, settings))


def _report_text(done: Sequence[Built]) -> str:
    """The report as JSON: that of the version, or what was found before the refusal, and why."""
    document: dict[str, object] = {"format": 1, "outcome": "failed"}
    for built in done:
        document = built.report.to_dict() if built.report else {"format": 1}
        if built.error is not None:
            document |= {"outcome": "refused", "error": built.error.to_dict()}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"
