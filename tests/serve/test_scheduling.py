"""The timer, and which batches run on the loop's own thread."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop

from repobuild_serve.core.statistics import Timing
from repobuild_serve.core.ticket import Ticket
from repobuild_serve.scheduling import timer
from repobuild_serve.scheduling.forming import Batch
from repobuild_serve.scheduling.short_runs import EARNED_NS, SHORT_NS, STREAK, ShortRuns

MS = 1_000_000


@pytest.fixture(params=["timerfd", "fallback"])
def kind(request, monkeypatch):
    """Both kinds of timer."""
    if request.param == "fallback":
        monkeypatch.setattr(timer, "_open_timerfd", lambda: -1)
    return request.param


def fire_times(*deadlines, until=0.3):
    """Arm a timer with these delays in ns; when it called back, relative to the start."""

    async def run():
        calls = []
        loop = asyncio.get_running_loop()
        start = time.monotonic_ns()
        one = timer.DeadlineTimer(loop, lambda: calls.append(time.monotonic_ns() - start))
        for deadline in deadlines:
            one.arm(None if deadline is None else start + deadline)
        await asyncio.sleep(until)
        one.close()
        return calls

    return uvloop.run(run())


def test_it_never_fires_early(kind):
    (at,) = fire_times(20 * MS)
    grain = 2 * MS if kind == "fallback" else 0
    assert at >= 20 * MS - grain


def test_the_earliest_deadline_counts(kind):
    calls = fire_times(200 * MS, 10 * MS, 400 * MS, None)
    assert len(calls) == 1
    assert calls[0] < 200 * MS


def test_a_deadline_that_has_passed_fires_at_once(kind):
    assert len(fire_times(-5 * MS, until=0.1)) == 1


def test_half_a_millisecond_is_not_rounded_up():
    best = min(fire_times(MS // 2, until=0.05)[0] for _ in range(10))
    assert MS // 2 <= best < MS


def batch(size=8):
    return Batch([Ticket(0, 1, 0, [bytes(size)], [()])], 1)


def timing(wall, cpu):
    return Timing(0, 0, 0, wall, cpu)


def test_a_streak_of_short_runs_lets_batches_run_on_the_loop():
    runs = ShortRuns()
    for _ in range(STREAK):
        assert not runs.allows(batch())
        runs.ran_elsewhere(batch(), timing(SHORT_NS // 2, SHORT_NS // 4))
    assert runs.allows(batch())
    assert not runs.allows(batch(9))


def test_a_long_run_ends_it_and_asks_for_a_longer_streak():
    runs = ShortRuns()
    for _ in range(STREAK):
        runs.ran_elsewhere(batch(), timing(100, 100))
    runs.ran_here(timing(SHORT_NS * 2, SHORT_NS * 2))
    for _ in range(2 * STREAK):
        assert not runs.allows(batch())
        runs.ran_elsewhere(batch(), timing(100, 100))
    assert runs.allows(batch())


def test_a_model_that_sleeps_never_runs_on_the_loop():
    runs = ShortRuns()
    for _ in range(STREAK * 10):
        runs.ran_elsewhere(batch(), timing(SHORT_NS * 10, 100))
    assert not runs.allows(batch())


def test_one_stall_is_forgiven_and_several_in_a_row_are_not():
    runs = ShortRuns()
    for _ in range(STREAK):
        runs.ran_elsewhere(batch(), timing(100, 100))
    for wall in (SHORT_NS * 9, 100, SHORT_NS * 9, SHORT_NS * 9, 100):
        runs.ran_here(timing(wall, 100))
        assert runs.allows(batch())
    for _ in range(3):
        runs.ran_here(timing(SHORT_NS * 9, 100))
    assert not runs.allows(batch())


def short_until_paid(runs, long_run):
    """Short runs on the loop until there is credit for a long one of so many ns."""
    for _ in range(STREAK):
        runs.ran_elsewhere(batch(), timing(100, 100))
    for _ in range(long_run // EARNED_NS + 1):
        assert runs.allows(batch())
        runs.ran_here(timing(100, 100))


def test_an_odd_long_run_is_paid_by_the_short_ones_before_it():
    runs = ShortRuns()
    short_until_paid(runs, 2 * SHORT_NS)
    runs.ran_here(timing(2 * SHORT_NS, 2 * SHORT_NS))
    assert runs.allows(batch())
    runs.ran_here(timing(2 * SHORT_NS, 2 * SHORT_NS))
    assert not runs.allows(batch())


def test_an_odd_long_run_on_an_instance_does_not_end_a_streak_that_has_credit():
    runs = ShortRuns()
    short_until_paid(runs, SHORT_NS + 1)
    runs.ran_elsewhere(batch(), timing(SHORT_NS + 1, SHORT_NS + 1))
    assert runs.allows(batch())


def test_no_number_of_short_runs_pays_for_one_of_many_milliseconds():
    runs = ShortRuns()
    short_until_paid(runs, 100 * MS)
    runs.ran_here(timing(10 * MS, 10 * MS))
    assert not runs.allows(batch())


def test_long_runs_take_a_small_share_of_the_loop():
    runs, here = ShortRuns(), 0
    for number in range(100_000):
        took = 10 * SHORT_NS if number % 50 == 0 else 100
        if runs.allows(batch()):
            runs.ran_here(timing(took, took))
            here += took > SHORT_NS
        else:
            runs.ran_elsewhere(batch(), timing(took, took))
    assert here < 20


def test_a_long_run_that_was_paid_for_vouches_for_no_larger_inputs():
    runs = ShortRuns()
    short_until_paid(runs, 2 * SHORT_NS)
    assert runs.allows(batch())
    runs.ran_elsewhere(batch(64), timing(SHORT_NS * 2, SHORT_NS * 2))
    assert runs.allows(batch())
    assert not runs.allows(batch(64))
