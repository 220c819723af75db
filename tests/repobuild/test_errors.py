"""Errors: how they look, how they travel, and that every code is explained."""

import re
import shutil
from pathlib import Path

import pytest

import repobuild
from repobuild import errors
from repobuild.catalog import CATALOG, as_markdown
from repobuild.errors import CheckFailed, Evidence, InputInvalid, error_from_dict, from_oserror

SOURCES = sorted(Path(repobuild.__file__).parent.rglob("*.py"))
RAISED = re.compile(
    r"\b(UsageProblem|InputInvalid|CheckFailed|ConversionFailed|SourceUntrusted|EnvironmentLacking|VerificationFailed|ConfigWrong)"
    r"[,(]\s*\"([a-z0-9-]+)\"",
)


def raised_codes():
    """``{code: class name}`` of every error that the builder's source constructs."""
    return {code: kind for path in SOURCES for kind, code in RAISED.findall(path.read_text())}


def test_rendering_shows_code_message_evidence_with_place_and_hint():
    error = InputInvalid(
        "recipe-invalid",
        "the recipe has 2 mistakes",
        (Evidence("unknown key", file="r.yaml", line=3, key="serving.foo"), Evidence("first\nsecond")),
        "mend it",
    )
    assert error.render() == (
        "error[recipe-invalid]: the recipe has 2 mistakes\n"
        "  - r.yaml:3: serving.foo: unknown key\n"
        "  - first\n"
        "    second\n"
        "hint: mend it"
    )


def test_an_error_without_evidence_and_hint_is_one_line():
    assert CheckFailed("check-failed", "it differs").render() == "error[check-failed]: it differs"


def test_an_error_survives_the_way_through_json():
    error = CheckFailed("check-failed", "it differs", (Evidence("row 3", key="equal: label"),), "look")
    again = error_from_dict(error.to_dict())
    assert type(again) is CheckFailed
    assert again.to_dict() == error.to_dict()


def test_codes_are_kebab_case():
    with pytest.raises(ValueError, match="kebab-case"):
        InputInvalid("Recipe Invalid", "no")


def test_the_source_search_finds_codes():
    assert {"recipe-invalid", "source-untrusted", "disk-full"} <= raised_codes().keys()
    assert len(raised_codes()) > 45


@pytest.mark.parametrize(("code", "kind"), sorted(raised_codes().items()))
def test_every_code_is_explained_with_the_status_of_its_class(code, kind):
    from repobuild.emit.config import ConfigWrong

    known = {**errors.KINDS, "ConfigWrong": ConfigWrong}
    assert CATALOG[code].status == known[kind].exit_code


def test_no_code_is_explained_that_nothing_raises():
    assert set(CATALOG) - raised_codes().keys() == {"bug"}


def test_the_documentation_page_is_the_catalog():
    page = Path(repobuild.__file__).parent.parent / "docs" / "errors.md"
    assert page.read_text(encoding="utf-8") == as_markdown(), "run: repobuild explain > docs/errors.md"


@pytest.mark.parametrize(
    ("number", "code"),
    [(28, "disk-full"), (13, "permission-denied"), (30, "permission-denied"), (5, "os-error")],
)
def test_operating_system_errors_say_what_was_being_done(number, code):
    error = from_oserror(OSError(number, "words of the system", "/some/file"), "writing the model")
    assert (error.code, error.exit_code) == (code, 7)
    assert "writing the model" in error.message
    assert "/some/file" in error.render()


def test_what_stops_the_copy_of_a_folder_is_told_as_what_stops_one_file(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").touch()

    def full(_, target):
        raise OSError(28, "No space left on device", target)

    with pytest.raises(shutil.Error) as caught:
        shutil.copytree(tmp_path / "model", tmp_path / "copy", copy_function=full)
    error = from_oserror(caught.value, "staging the model")
    assert (error.code, error.evidence[0].file) == ("disk-full", str(tmp_path / "copy" / "weights"))


def test_what_could_move_the_cursor_is_escaped():
    hostile = "os\x1b[1A\x1b[2K.system\u202egnp\x07\r"
    error = InputInvalid("source-untrusted", hostile, (Evidence(hostile, file=hostile),), "a\nb é 漢")
    shown = error.render()
    assert not {"\x1b", "\u202e", "\x07", "\r"} & set(shown)
    assert "os\\x1b[1A" in shown
    assert shown.endswith("hint: a\nb é 漢")
