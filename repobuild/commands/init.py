"""``repobuild init``: a recipe drafted for a model file."""

from __future__ import annotations

from pathlib import Path

import click

from repobuild.commands._options import GivenPath, json_option, trust_option
from repobuild.envelope import Dialogue


@click.command()
@click.argument("model", type=GivenPath())
@click.option("--samples", type=GivenPath(), help="Real input rows for it.")
@click.option("--name", help="Model name in the repository; made from the file's name when left out.")
@trust_option
@click.option(
    "-o",
    "--output",
    type=GivenPath("file", file=True),
    default=Path("recipe.yaml"),
    show_default=True,
    help="Recipe file to write.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
@click.pass_obj
def init(
    talk: Dialogue,
    /,
    model: Path,
    samples: Path | None,
    name: str | None,
    trust: tuple[str, ...],
    output: Path,
    force: bool,
) -> None:
    """Write a recipe for a MODEL file, with every key that it does not need as a comment.

    What the file says without being loaded goes into the recipe; with --trust, the model is loaded, and its
    inputs, outputs and classes are written too.
    """
    from repobuild.drafting import draft_recipe, write_draft
    from repobuild.sources.interface import Trust

    draft = draft_recipe(model, samples, Trust(frozenset(trust)), output.absolute().parent, name)
    write_draft(draft, output, force=force)
    for note in draft.notes:
        talk.note(note)
    talk.result = {"recipe": str(output), "name": draft.name, "model": draft.model, "text": draft.text}
    talk.say(f"wrote {output} for the model '{draft.name}'; next: repobuild plan {output}")
