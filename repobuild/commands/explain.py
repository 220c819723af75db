"""``repobuild explain``: error codes in words."""

from __future__ import annotations

import difflib

import click

from repobuild.catalog import CATALOG, as_markdown


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Tell more about an error CODE, or about all of them."""
    if code is None:
        click.echo(as_markdown(), nl=False)
        return
    meaning = CATALOG.get(code)
    if meaning is None:
        near = difflib.get_close_matches(code, CATALOG, 3)
        raise click.BadParameter(f"no such code; near are {', '.join(near)}" if near else "no such code")
    click.echo(f"{code} (exit status {meaning.status})\n{meaning.text}")
