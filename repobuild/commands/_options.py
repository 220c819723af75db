"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from repobuild.console import PROGRESS
from repobuild.recipe.implied import Setting, parse_setting

TRUST_KINDS = ("pickle", "module", "torchscript")
Command = TypeVar("Command", bound=Callable[..., Any])


class GivenPath(click.ParamType[Path]):
    """A path; an empty one, as an unset variable gives, is refused.

    Args:
        name: What it is, for help.
        file: Whether it is to be written, so that it cannot be a folder.
    """

    def __init__(self, name: str = "path", *, file: bool = False) -> None:
        self.name = name
        self._file = file

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Turn the word into a path."""
        if not str(value).strip():
            self.fail("the path is empty", param, ctx)
        path = Path(str(value))
        if self._file and (path.is_dir() or not path.name):
            self.fail(f"'{path}' is a folder", param, ctx)
        return path


def repository_option(*, required: bool, text: str) -> Callable[[Command], Command]:
    """``--repository``."""
    return click.option("-r", "--repository", type=GivenPath("folder"), required=required, help=text)


def trust_option(command: Command) -> Command:
    """``--trust``."""
    return click.option(
        "--trust",
        multiple=True,
        type=click.Choice(TRUST_KINDS),
        help="Vouch for a kind of file that runs code when it is loaded. May be repeated.",
    )(command)


def changes_options(command: Command) -> Command:
    """``--update-config`` and ``--allow-schema-change``."""
    for decorate in (
        click.option(
            "--allow-schema-change",
            is_flag=True,
            help="Let a version have other inputs or outputs than the one before it.",
        ),
        click.option(
            "--update-config",
            is_flag=True,
            help="Bring a config.pbtxt up to date that was written or edited by hand.",
        ),
    ):
        command = decorate(command)
    return command


def json_option(command: Command) -> Command:
    """``--json``; the value is read from the words themselves, so that usage errors honour it too."""
    return click.option(
        "--json", is_flag=True, expose_value=False, help="Print one JSON envelope on standard output."
    )(command)


def junit_option(command: Command) -> Command:
    """``--junit``."""
    return click.option(
        "--junit",
        type=GivenPath("file", file=True),
        help="Write every check as JUnit XML here, also when a build is refused.",
    )(command)


def progress_options(command: Command) -> Command:
    """``--progress`` and ``--quiet``."""
    command = click.option("-q", "--quiet", is_flag=True, help="Print the result and notes only.")(command)
    return click.option(
        "--progress",
        type=click.Choice(PROGRESS),
        default="auto",
        help="How steps are shown: live on a terminal, plain lines elsewhere and in CI (auto).",
    )(command)


def setting_options(command: Command) -> Command:
    """Options that set keys of the recipe; :func:`settings_of` reads them."""
    for option in reversed(
        (
            click.option("--name", help="Model name in the repository."),
            click.option("--samples", metavar="FILE", help="Real input rows."),
            click.option("--labels", metavar="FILE", help="True targets of the samples."),
            click.option("--max-batch-size", type=int, help="Largest batch; 0 for none."),
            click.option("--target", metavar="RELEASE", help="Triton release that has to load the model."),
            click.option("--opset", type=int, help="ONNX opset of the default domain."),
            click.option(
                "--set",
                "settings",
                multiple=True,
                metavar="KEY.PATH=VALUE",
                help="Set any key of the recipe to a YAML value. May be repeated.",
            ),
        )
    ):
        command = option(command)
    return command


FLAGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("name", ("name",)),
    ("samples", ("samples",)),
    ("labels", ("labels",)),
    ("max_batch_size", ("serving", "max_batch_size")),
    ("target", ("target", "triton")),
    ("opset", ("export", "opset")),
)
"""Options of :func:`setting_options` and the keys that they set."""


def settings_of(model: Path, given: dict[str, Any]) -> tuple[Setting, ...]:
    """The settings behind the options of a command, those of ``--set`` last.

    Args:
        model: The recipe, folder or model file. Paths on the command line are relative to the working
            directory, and those in a recipe to the recipe's folder.
        given: Values of the options by parameter name.

    Raises:
        UsageProblem: A ``--set`` is malformed.
    """
    from repobuild.recipe.implied import is_recipe_path

    made = []
    for option, at in FLAGS:
        value = given[option]
        if value is None:
            continue
        word = f"--{option.replace('_', '-')} {value}"
        if option in ("samples", "labels") and value and is_recipe_path(model):
            value = str(Path(value).absolute())
        made.append(Setting(at, value, word))
    return (*made, *(parse_setting(text) for text in given["settings"]))
