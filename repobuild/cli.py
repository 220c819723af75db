"""The command line: a table of commands, each imported only when it runs, and one ladder of exit codes."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import signal
import sys
from types import FrameType
from typing import Any

import click

from repobuild import __version__
from repobuild.envelope import AlreadyTold, Dialogue, annotate, bare_error, error_document
from repobuild.errors import (
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EnvironmentLacking,
    RepobuildError,
    from_oserror,
    printable,
)
from repobuild.interrupts import ignore_interrupts
from repobuild.streams import OutputClosed

COMMANDS = {
    "init": ("repobuild.commands.init:init", "Write a recipe for a model file."),
    "plan": ("repobuild.commands.plan:plan", "Tell what convert or build would do, running nothing."),
    "convert": ("repobuild.commands.convert:convert", "Convert one model into a proven Triton repository."),
    "build": ("repobuild.commands.build:build", "Convert every recipe below a folder."),
    "validate": (
        "repobuild.commands.validate:validate",
        "Check a repository again, on disk and on the server.",
    ),
    "inspect": ("repobuild.commands.inspect:inspect", "Tell what a model file or a repository holds."),
    "lint": ("repobuild.commands.lint:lint", "Check model repositories offline, hand-written ones too."),
    "serve": ("repobuild.commands.serve:serve", "Serve a model repository with the bundled server."),
    "schema": ("repobuild.commands.schema:schema", "Print the JSON Schema of recipes."),
    "doctor": ("repobuild.commands.doctor:doctor", "Look whether this machine has what repobuild needs."),
    "explain": ("repobuild.commands.explain:explain", "Tell more about an error code."),
    "completion": (
        "repobuild.commands.completion:completion",
        "Print a script that completes words in a shell.",
    ),
}


class LazyGroup(click.Group):
    """Lists commands from the table without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest command named for a mistyped one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            also = f" Did you mean '{near[0]}'?" if near else f" There are {', '.join(COMMANDS)}."
            ctx.fail(f"No such command '{args[0]}'.{also}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Summaries from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="repobuild")
@click.option("--debug", is_flag=True, help="Print tracebacks of errors.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Turn trained models into proven NVIDIA Triton model repositories, and serve them."""
    ctx.ensure_object(Dialogue)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Words after the program's name; ``None`` for those of the process.

    Returns:
        The exit status: 0 ok, 2 usage, 3 to 8 by kind of error (see :mod:`repobuild.errors`), 130
        interrupted, 70 our bug.
    """
    words = sys.argv[1:] if arguments is None else arguments
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has the last word
            signal.signal(number, _interrupt)
    try:
        return _run(words)
    except OutputClosed:
        return EXIT_OK
    except KeyboardInterrupt:  # a second one, while the first was being told
        return EXIT_INTERRUPTED
    finally:
        if arguments is None:
            ignore_interrupts()


def _run(words: list[str]) -> int:
    debug = "--debug" in words
    talk = Dialogue.of(words)
    try:
        status: Any = cli.main(args=words, prog_name="repobuild", standalone_mode=False, obj=talk)
        talk.close(int(status or EXIT_OK))
        return int(status or EXIT_OK)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _interrupted(talk)
    except click.ClickException as problem:
        problem.show()
        _close(talk, problem.exit_code, bare_error("usage", problem.format_message()))
        return problem.exit_code
    except AlreadyTold as told:
        return _failed(told.error, talk, debug=debug, told=True)
    except RepobuildError as problem:
        return _failed(problem, talk, debug=debug)
    except OutputClosed:
        raise
    except OSError as problem:
        return _failed(from_oserror(problem, "running the command"), talk, debug=debug)
    except Exception as problem:  # noqa: BLE001 - the last rung: whatever is left is our bug, and says so
        return _bug(problem, talk, debug=debug)


def _interrupted(talk: Dialogue) -> int:
    text = "interrupted; nothing half written was left"
    _say(text)
    _close(talk, EXIT_INTERRUPTED, bare_error("interrupted", text))
    return EXIT_INTERRUPTED


def _failed(problem: RepobuildError, talk: Dialogue, *, debug: bool, told: bool = False) -> int:
    if debug:
        _traceback()
    if not told:
        _say(problem.render())
        annotate(problem)
    _close(talk, problem.exit_code, error_document(problem))
    return problem.exit_code


def _bug(problem: Exception, talk: Dialogue, *, debug: bool) -> int:
    if debug:
        _traceback()
    message = f"repobuild failed in a way that it should not: {type(problem).__name__}: {problem}"
    hint = "run again with --debug before the command's name, and report what it prints"
    _say(f"error[bug]: {printable(message)}\nhint: {hint}")
    _close(talk, EXIT_BUG, bare_error("bug", message, hint))
    return EXIT_BUG


def _close(talk: Dialogue, status: int, error: dict[str, Any]) -> None:
    """Print the envelope of an error; the error stands, whether that can be printed or not."""
    with contextlib.suppress(OutputClosed, EnvironmentLacking):
        talk.close(status, error)


def _traceback() -> None:
    import traceback

    _say(traceback.format_exc())


def _say(text: str) -> None:
    click.echo(text, err=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
