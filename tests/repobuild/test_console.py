"""What the command line shows of a build: plain lines, live lines on a terminal, heartbeats, tables."""

import contextlib
import io
import re
import threading

import pytest

from repobuild.console import Collecting, LiveLines, PlainLines, display, table


@pytest.fixture
def terminal(monkeypatch):
    """Makes standard error a terminal of that kind: ``terminal(TERM="xterm")``."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def make(**environment):
        for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"TERM": "xterm-256color", **environment}.items():
            monkeypatch.setenv(name, value)
        stream = Terminal()
        monkeypatch.setattr("sys.stderr", stream)
        return stream

    return make


def a_build(shown):
    with shown:
        shown.began("load")
        shown.note("a [bold]name[/bold] \x1b[2J")
        shown.ended("load", "model [red]x[/red]", 1.25)
        shown.began("export")


def test_plain_lines_are_one_a_step_and_escape_what_moves_a_cursor(capsys):
    a_build(PlainLines())
    err = capsys.readouterr().err
    assert err == "note: a [bold]name[/bold] \\x1b[2J\n  load     model [red]x[/red] (1.2 s)\n"


def test_quiet_shows_notes_only(capsys):
    a_build(display("auto", quiet=True))
    assert capsys.readouterr().err == "note: a [bold]name[/bold] \\x1b[2J\n"


def test_a_long_step_has_heartbeats_and_none_follow_its_end(capsys):
    shown = PlainLines(heartbeat=0.001)
    said = ""
    with shown:
        shown.began("verify")
        while said.count("still at work") < 2:
            said += capsys.readouterr().err
        shown.ended("verify", "done", 0.0)
        rest = capsys.readouterr().err
        assert rest.endswith("  verify   done (0.0 s)\n")
    assert re.fullmatch(r"(  verify   still at work \(0 s\)\n)+", said)
    assert capsys.readouterr().err == ""


def test_an_interrupted_step_leaves_no_heartbeat_behind():
    shown = PlainLines(heartbeat=0.001)
    before = threading.active_count()
    with contextlib.suppress(KeyboardInterrupt), shown:
        shown.began("load")
        raise KeyboardInterrupt
    assert threading.active_count() == before


def test_on_a_terminal_lines_of_ended_steps_stay_and_text_is_no_markup(terminal):
    stream = terminal()
    a_build(display("auto"))
    said = stream.getvalue()
    assert "  load     model [red]x[/red] (1.2 s)" in said
    assert "a [bold]name[/bold] \\x1b[2J" in said
    assert "\x1b[2J" not in said
    assert "\x1b[" in said


def test_no_color_is_honoured(terminal):
    stream = terminal(NO_COLOR="1")
    a_build(display("auto"))
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", stream.getvalue())


@pytest.mark.parametrize(
    ("progress", "environment", "live"),
    [
        ("auto", {}, True),
        ("auto", {"CI": "true"}, False),
        ("auto", {"TERM": "dumb"}, False),
        ("plain", {}, False),
        ("tty", {"CI": "true"}, True),
        ("quiet", {}, False),
    ],
)
def test_which_display_is_chosen(terminal, progress, environment, live):
    terminal(**environment)
    assert isinstance(display(progress), LiveLines) == live


def test_without_a_terminal_lines_are_plain(capsys):
    assert isinstance(display("auto"), PlainLines)


def test_notes_are_collected_on_their_way():
    notes = []
    Collecting(PlainLines(quiet=True), notes).note("one")
    assert notes == ["one"]


def test_a_table_has_columns_of_equal_width():
    assert table([("a", "bb", "x y"), ("ccc", "d", "")]) == "a    bb  x y\nccc  d"
    assert table([]) == ""
