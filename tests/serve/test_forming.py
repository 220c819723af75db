"""Which requests become a batch, and when: the table measured on Triton, and what always holds."""

from __future__ import annotations

import weakref
from array import array
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repobuild_serve.config.settings import BatchingPolicy, QueuePolicy
from repobuild_serve.core.ticket import Ticket
from repobuild_serve.errors import LoadError
from repobuild_serve.scheduling.forming import BatchFormer
from repobuild_serve.scheduling.holding import requests_to_hold

MS = 1_000_000


@dataclass
class Bench:
    """A former with instances, driven by a clock that only the test moves."""

    former: BatchFormer
    idle: int
    now: int = 1_000 * MS
    number: int = 0
    wake: int | None = None
    runs: list[tuple[float, list[int]]] = field(default_factory=list)
    running: list[list[int]] = field(default_factory=list)
    rejected: list[tuple[float, int]] = field(default_factory=list)

    def at(self) -> float:
        return self.now / MS - 1000

    def arrive(self, rows: int = 1, key: object = None, timeout_ms: float = 0, priority: int = 0) -> int:
        self.number += 1
        ticket = Ticket(self.number, rows, self.now, (), (), key, int(timeout_ms * MS), priority)
        if self.former.full(ticket):
            raise OverflowError
        if self.former.enqueue(ticket):
            self.pump()
        return self.number

    def burst(self, *rows: int) -> None:
        """Requests that all arrive before the batcher looks."""
        for count in rows:
            self.number += 1
            self.former.enqueue(Ticket(self.number, count, self.now, (), ()))
        self.pump()

    def pump(self) -> None:
        for ticket in self.former.expire(self.now):
            self.rejected.append((self.at(), ticket.number))
        self.wake = self.former.form(self.now, self.idle)
        while self.idle and (batch := self.former.take(self.now)):
            assert batch.rows == sum(ticket.rows for ticket in batch.tickets)
            self.idle -= 1
            numbers = [ticket.number for ticket in batch.tickets]
            self.runs.append((self.at(), numbers))
            self.running.append(numbers)
            self.wake = self.former.form(self.now, self.idle)

    def finish(self) -> None:
        """The instance that began first becomes free."""
        self.running.pop(0)
        self.idle += 1
        self.pump()

    def pass_time(self, ms: float) -> None:
        end = self.now + int(ms * MS)
        while self.wake is not None and self.wake <= end:
            self.now = max(self.now, self.wake)
            self.pump()
        self.now = end

    def sizes(self) -> list[tuple[float, int]]:
        return [(at, len(numbers)) for at, numbers in self.runs]


def bench(
    *preferred: int, largest: int = 8, delay_ms: float = 0, idle: int = 1, instances: int = 0, **queue: object
) -> Bench:
    policy = BatchingPolicy(
        preferred=preferred or (largest,),
        max_batch_size=largest,
        delay_ns=int(delay_ms * MS),
        queue=QueuePolicy(**queue),  # type: ignore[arg-type]
    )
    return Bench(BatchFormer(policy, instances or idle), idle)


def test_without_delay_a_busy_instance_collects_what_comes_meanwhile():
    b = bench()
    for _ in range(11):
        b.arrive()
    assert b.sizes() == [(0, 1)]
    b.finish()
    b.finish()
    assert b.sizes() == [(0, 1), (0, 8), (0, 2)]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [(300, 1)]),
        (3, [(300, 3)]),
        (4, [(0, 4)]),
        (5, [(0, 4), (300, 1)]),
        (9, [(0, 4), (0, 4), (300, 1)]),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_a_preferred_size_goes_at_once_and_the_rest_waits(count, expected, together):
    b = bench(4, delay_ms=300, idle=5)
    if together:
        b.burst(*[1] * count)
    else:
        for _ in range(count):
            b.arrive()
    b.pass_time(1000)
    assert b.sizes() == expected


def test_without_a_preferred_size_the_largest_is_preferred():
    b = bench(delay_ms=300, idle=5)
    for _ in range(3):
        b.arrive()
    b.pass_time(299)
    assert b.sizes() == []
    b.pass_time(2)
    assert b.sizes() == [(300, 3)]
    for _ in range(8):
        b.arrive()
    assert b.sizes()[1:] == [(301, 8)]


def test_requests_of_several_rows_that_would_exceed_the_largest_batch():
    b = bench(delay_ms=300, idle=5)
    for _ in range(3):
        b.arrive(rows=3)
    assert b.runs == [(0, [1, 2])]
    b.pass_time(1000)
    assert b.runs[1:] == [(300, [3])]


def test_a_request_that_fills_the_batch_alone_goes_at_once():
    b = bench(delay_ms=300)
    b.arrive(rows=8)
    assert b.sizes() == [(0, 1)]


def test_another_shape_sends_what_waits_at_once():
    b = bench(delay_ms=300, idle=5)
    b.arrive(key="A")
    b.pass_time(10)
    b.arrive(key="B")
    assert b.sizes() == [(10, 1)]
    b.pass_time(1000)
    assert b.sizes() == [(10, 1), (310, 1)]


def test_preferred_sizes_without_delay_while_the_instance_is_busy():
    b = bench(2, 4)
    b.arrive()
    b.burst(*[1] * 7)
    for _ in range(4):
        if b.running:
            b.finish()
    sizes = [size for _, size in b.sizes()[1:]]
    assert sizes[0] in {2, 4}
    assert sum(sizes) == 7
    assert max(sizes) <= 4


def test_two_busy_instances_without_delay_leave_one_batch_for_the_first_that_is_free():
    b = bench(idle=2)
    b.arrive()
    b.arrive()
    for _ in range(6):
        b.arrive()
    b.finish()
    assert [size for _, size in b.sizes()] == [1, 1, 6]


def test_the_delay_counts_from_the_oldest_request():
    b = bench(delay_ms=100, idle=2)
    b.arrive()
    b.pass_time(60)
    b.arrive()
    b.pass_time(60)
    assert b.runs == [(100, [1, 2])]


def test_a_late_batch_ignores_preferred_sizes():
    b = bench(4, delay_ms=100, instances=1, idle=0, max_size=100)
    b.burst(1, 1, 1, 1, 1, 1)
    b.pass_time(200)
    b.idle = 1
    b.pump()
    assert b.sizes() == [(200, 6)]


def test_a_delay_below_a_millisecond_is_kept():
    b = bench(delay_ms=0.25)
    b.arrive()
    b.pass_time(0.2499)
    assert b.runs == []
    b.pass_time(0.0002)
    assert b.sizes() == [(0.25, 1)]


def test_an_open_batch_takes_waiting_late_ones_along():
    b = bench(delay_ms=10, idle=0, instances=1)
    b.arrive(key="A")
    b.pass_time(20)
    b.arrive(key="A")
    b.pass_time(20)
    b.idle = 1
    b.pump()
    assert b.runs == [(40, [1, 2])]


def test_rejected_at_the_deadline_even_while_every_instance_is_busy():
    b = bench(timeout_ns=50 * MS)
    b.arrive()
    b.pass_time(10)
    b.arrive()
    b.pass_time(100)
    assert b.rejected == [(60, 2)]
    assert b.runs == [(0, [1])]
    b.finish()
    assert b.runs == [(0, [1])]


def test_an_executing_request_is_never_cut():
    b = bench(timeout_ns=50 * MS)
    b.arrive()
    b.pass_time(1000)
    assert b.rejected == []


@pytest.mark.parametrize(
    ("default_ms", "override", "asked_ms", "deadline"),
    [
        (50, True, 20, 20),
        (50, True, 80, 50),
        (50, True, 0, 50),
        (50, False, 20, 50),
        (0, True, 20, None),
        (0, False, 20, None),
    ],
)
def test_which_timeout_counts(default_ms, override, asked_ms, deadline):
    b = bench(timeout_ns=default_ms * MS, allow_override=override, idle=0, instances=1)
    b.arrive(timeout_ms=asked_ms)
    b.pass_time(200)
    assert b.rejected == ([] if deadline is None else [(deadline, 1)])


def test_delayed_requests_run_after_the_fresh_ones_and_do_not_expire_again():
    b = bench(largest=2, timeout_ns=50 * MS, delay_expired=True)
    b.arrive()
    old = [b.arrive(), b.arrive()]
    b.pass_time(60)
    fresh = [b.arrive(), b.arrive()]
    b.finish()
    b.pass_time(500)
    b.finish()
    assert [numbers for _, numbers in b.runs] == [[1], fresh, old]
    assert b.rejected == []


class Compared(Ticket):
    """A request that counts how often it is compared with another one."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return self is other

    __hash__ = Ticket.__hash__


@pytest.mark.parametrize("delay_expired", [False, True], ids=["reject", "delay"])
@pytest.mark.parametrize("order", ["first", "last", "mixed"])
def test_expiry_looks_for_no_request_among_the_others(monkeypatch, delay_expired, order):
    """Whatever the order in which they expire, and also if many do at once."""
    monkeypatch.setattr(Compared, "times", 0)
    count = 2000
    most = 2 * count * MS
    b = bench(idle=0, instances=1, timeout_ns=most, allow_override=True, delay_expired=delay_expired)
    for number in range(count):
        wait = {"first": number, "last": count - number, "mixed": number * 7919 % count}[order] + 1
        b.former.enqueue(Compared(number, 1, b.now, (), (), None, wait * MS))
    half = b.former.expire(b.now + count // 2 * MS)
    rest = b.former.expire(b.now + (count + 1) * MS)
    assert len(half + rest) == (0 if delay_expired else count)
    left = b.former.drain()
    assert len(left) == (count if delay_expired else 0)
    # Each goes when its time is over, and delayed ones queue up in that order.
    waits = [ticket.timeout_ns for ticket in half + rest + left]
    assert waits == sorted(waits)
    assert len({ticket.number for ticket in half + rest + left}) == count
    assert Compared.times <= count


def test_requests_in_mid_queue_leave_and_the_order_of_the_others_stays():
    b = bench(idle=0, instances=1, largest=16, timeout_ns=100 * MS, allow_override=True)
    for wait in (0, 5, 0, 5, 0, 7):
        b.arrive(timeout_ms=wait)
    b.pass_time(6)
    assert b.rejected == [(5, 2), (5, 4)]
    last = b.arrive()
    assert len(b.former) == 5
    b.idle = 1
    b.pump()
    assert b.runs == [(6, [1, 3, 5, 6, last])]


def test_the_queue_limit_counts_what_waits_and_not_what_was_dispatched():
    b = bench(max_size=2)
    for _ in range(3):
        b.arrive()
    with pytest.raises(OverflowError):
        b.arrive()
    b.finish()
    b.arrive()
    assert b.former.pending() == 1


def test_a_queue_limit_turns_prefetch_off():
    b = bench(delay_ms=0, max_size=100)
    for _ in range(10):
        b.arrive()
    assert len(b.former.ready) == 0
    b.finish()
    assert [size for _, size in b.sizes()] == [1, 8]


def test_drain_takes_everything_out():
    b = bench(idle=0, instances=1, timeout_ns=50 * MS)
    for _ in range(5):
        b.arrive()
    assert [ticket.number for ticket in b.former.drain()] == [1, 2, 3, 4, 5]
    assert b.former.pending() == 0
    b.pass_time(100)
    assert b.rejected == []


STEP = st.one_of(
    st.tuples(st.just("arrive"), st.integers(1, 8), st.sampled_from(["A", "B"])),
    st.tuples(st.just("wait"), st.integers(1, 40), st.none()),
    st.tuples(st.just("finish"), st.none(), st.none()),
)


@given(
    steps=st.lists(STEP, max_size=60),
    preferred=st.sets(st.integers(1, 8), max_size=3),
    delay=st.sampled_from([0, 5, 50]),
    instances=st.integers(1, 3),
    timeout=st.sampled_from([0, 20]),
    delayed=st.booleans(),
    keyed=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_nothing_is_lost_or_run_twice_and_no_batch_is_too_large(
    steps, preferred, delay, instances, timeout, delayed, keyed
):
    b = bench(
        *sorted(preferred),
        delay_ms=delay,
        idle=instances,
        timeout_ns=timeout * MS,
        delay_expired=delayed,
    )
    rows: dict[int, tuple[int, str]] = {}
    for what, number, key in steps:
        if what == "arrive":
            rows[b.arrive(rows=number, key=key if keyed else None)] = (number, key)
        elif what == "wait":
            b.pass_time(number)
        elif b.running:
            b.finish()
    for _ in range(len(steps) + 5):
        b.pass_time(200)
        while b.running:
            b.finish()
    done = [number for _, numbers in b.runs for number in numbers]
    rejected = [number for _, number in b.rejected]
    assert sorted(done + rejected) == sorted(rows)
    for _, numbers in b.runs:
        assert sum(rows[number][0] for number in numbers) <= 8
        if keyed:
            assert len({rows[number][1] for number in numbers}) == 1
    if not timeout:
        assert done == sorted(done)
    if not (timeout and not delayed):
        assert rejected == []
    assert b.former.pending() == 0


def levels(*policies: QueuePolicy, default: int = 1, **more: object) -> Bench:
    policy = BatchingPolicy(
        preferred=(1,),
        max_batch_size=1,
        levels=len(policies),
        default_level=default,
        level_queues=dict(enumerate(policies, 1)),
        **more,  # type: ignore[arg-type]
    )
    return Bench(BatchFormer(policy, 1), 0)


def run_all(waiting: Bench) -> list[int]:
    waiting.idle = 1
    waiting.pump()
    while waiting.running:
        waiting.finish()
    return [number for _, numbers in waiting.runs for number in numbers]


def test_the_highest_priority_runs_first_and_each_level_in_order():
    waiting = levels(QueuePolicy(), QueuePolicy(), QueuePolicy(), default=2)
    for priority in (3, 1, 0, 2, 1, 7):
        waiting.arrive(priority=priority)
    # 0 and levels that do not exist count as the default, which is 2.
    assert run_all(waiting) == [2, 5, 3, 4, 6, 1]


def test_each_level_has_its_own_limit():
    waiting = levels(QueuePolicy(max_size=1), QueuePolicy())
    waiting.arrive(priority=1)
    waiting.arrive(priority=2)
    waiting.arrive(priority=2)
    with pytest.raises(OverflowError):
        waiting.arrive(priority=1)


def test_delayed_requests_stay_in_their_level():
    waiting = levels(QueuePolicy(timeout_ns=5 * MS, delay_expired=True), QueuePolicy())
    waiting.arrive(priority=1)
    waiting.arrive(priority=2)
    waiting.pass_time(6)
    waiting.arrive(priority=1)
    assert run_all(waiting) == [3, 1, 2]
    assert not waiting.rejected


def test_a_level_rejects_by_its_own_time_out():
    waiting = levels(QueuePolicy(timeout_ns=5 * MS), QueuePolicy())
    first = waiting.arrive(priority=1)
    second = waiting.arrive(priority=2)
    waiting.pass_time(6)
    assert waiting.rejected == [(5, first)]
    assert run_all(waiting) == [second]


def test_a_higher_priority_takes_the_place_in_the_next_batch():
    policy = BatchingPolicy(preferred=(2,), max_batch_size=2, levels=2, default_level=2)
    waiting = Bench(BatchFormer(policy, 1), 0)
    for priority in (2, 2, 2, 1):
        waiting.arrive(priority=priority)
    waiting.idle = 1
    waiting.pump()
    assert waiting.running == [[4, 1]]


def test_requests_that_have_left_are_let_go_of():
    """Also those whose time-out would have expired after that of one which still waits."""
    waiting = levels(QueuePolicy(timeout_ns=1000 * MS), QueuePolicy(timeout_ns=1000 * MS))
    waiting.arrive(priority=2)
    waiting.now += MS
    held = []
    for number in range(2, 302):
        data = array("b", b"x")
        held.append(weakref.ref(data))
        waiting.former.enqueue(Ticket(number, 1, waiting.now, (data,), ((1,),), priority=1))
        waiting.former.form(waiting.now, 1)
        batch = waiting.former.take(waiting.now)
        assert batch is not None
        assert batch.tickets[0].number == number
        del batch, data
    assert not any(reference() for reference in held)


def test_a_batcher_may_be_told_to_wait_for_its_first_requests():
    policy = BatchingPolicy(preferred=(2,), max_batch_size=2, queue=QueuePolicy(timeout_ns=50 * MS))
    for chosen, rejected in ((policy, True), (replace(policy, queue=QueuePolicy()), False)):
        waiting = Bench(BatchFormer(chosen, 1, hold=3), 1)
        waiting.arrive()
        waiting.arrive()
        assert not waiting.runs
        waiting.pass_time(60)
        # Time-outs hold meanwhile, and those who wait are counted anew.
        assert bool(waiting.rejected) == rejected
        while not waiting.runs:
            waiting.arrive()
        assert waiting.number == (5 if rejected else 3)
        waiting.finish()
        before = len(waiting.runs)
        if waiting.running:
            waiting.finish()
        waiting.arrive()
        assert len(waiting.runs) == before + 1


@pytest.mark.parametrize(("text", "count"), [("", 0), ("3", 3), (" 12 ", 12), ("-1", 0)])
def test_the_environment_tells_how_many(text, count):
    assert requests_to_hold({"TRITONSERVER_DELAY_SCHEDULER": text}) == count
    assert requests_to_hold({}) == 0


def test_another_word_for_it_is_an_error():
    with pytest.raises(LoadError, match="TRITONSERVER_DELAY_SCHEDULER must be a number of requests, got: x"):
        requests_to_hold({"TRITONSERVER_DELAY_SCHEDULER": "x"})
