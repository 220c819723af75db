"""``repobuild serve``: hands everything to the bundled server's own command line."""

from __future__ import annotations

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
    options_metavar="REPOSITORY [OPTIONS]",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def serve(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Serve a model repository over HTTP; the same as python -m repobuild_serve."""
    from repobuild_serve.cli import main

    ctx.exit(main(list(arguments)))
