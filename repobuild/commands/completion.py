"""``repobuild completion``: words completed by the shell."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes repobuild's words in a SHELL.

    bash: eval "$(repobuild completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc. fish: repobuild
    completion fish > ~/.config/fish/completions/repobuild.fish.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    maker = found(ctx.find_root().command, {}, "repobuild", "_REPOBUILD_COMPLETE")
    click.echo(maker.source())
