"""Signals that come while a thread is being started: every clean-up runs, and none is an error of ours."""

import signal
import threading

import pytest

from repobuild.console import LiveLines, PlainLines
from repobuild.executor.interface import Job
from repobuild.executor.local import LocalExecutor
from repobuild.interrupts import undisturbed


@pytest.fixture(params=["before it runs", "when it runs"])
def interrupted_start(request, monkeypatch):
    """Makes the first start of a thread meet SIGTERM, which raises ``KeyboardInterrupt`` as in a command."""

    def handler(*_):
        raise KeyboardInterrupt

    start, waiting = threading.Thread.start, [True]

    def interrupted(thread):
        meets = waiting and waiting.pop()
        if meets and request.param == "before it runs":
            signal.raise_signal(signal.SIGTERM)
        start(thread)
        if meets and request.param == "when it runs":
            signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, handler)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def no_thread_left():
    """Looks that every thread that a test starts has ended with it."""
    before = {*threading.enumerate()}
    yield
    for thread in {*threading.enumerate()} - before:
        thread.join(5)
        assert not thread.is_alive(), thread


@pytest.mark.usefixtures("no_thread_left", "interrupted_start")
def test_an_interrupt_while_a_step_begins_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt), PlainLines(heartbeat=0.01) as lines:
        lines.began("load")


@pytest.mark.usefixtures("no_thread_left", "interrupted_start")
def test_an_interrupt_while_the_spinner_starts_leaves_the_terminal_as_it_was(capsys):
    with pytest.raises(KeyboardInterrupt), LiveLines():
        pass
    written = capsys.readouterr().err
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h")


@pytest.mark.usefixtures("no_thread_left", "interrupted_start")
def test_work_that_is_interrupted_while_it_begins_is_told_to_give_up():
    ended = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        undisturbed(lambda: ended.wait(60), ended.set)
    assert ended.is_set()


@pytest.mark.usefixtures("no_thread_left", "interrupted_start")
def test_jobs_that_are_interrupted_while_they_begin_can_be_shut_down():
    executor = LocalExecutor(1)
    try:
        with pytest.raises(KeyboardInterrupt):
            executor.submit(Job("operator:neg", {}))
    finally:
        executor.shutdown()
