"""Batches that are handed to busy instances ahead of time, so that none waits for a turn of the loop."""

import threading
import time
from types import SimpleNamespace

import pytest

from repobuild_serve.config.settings import BatchingPolicy, QueuePolicy
from repobuild_serve.core.execution import Executor, Outcome
from repobuild_serve.core.statistics import Statistics, Timing
from repobuild_serve.core.ticket import Ticket
from repobuild_serve.errors import RequestError
from repobuild_serve.scheduling import scheduler
from repobuild_serve.scheduling.direct import DirectFormer
from repobuild_serve.scheduling.forming import BatchFormer
from repobuild_serve.scheduling.scheduler import Scheduler
from repobuild_serve.scheduling.short_runs import STREAK
from repobuild_serve.scheduling.workers import ThreadWorker

TIMING = Timing(0, 0, 0, 0)


class Loop:
    """Runs what is due when told to, whichever thread asked for it."""

    def __init__(self):
        self.due = []

    def call_soon(self, call, *arguments):
        self.due.append((call, arguments))

    call_soon_threadsafe = call_soon

    def add_reader(self, *_):
        pass

    def remove_reader(self, *_):
        pass

    def turn(self):
        while self.due:
            call, arguments = self.due.pop(0)
            call(*arguments)


class Sink:
    """Remembers what was answered."""

    def __init__(self):
        self.answers = []

    def deliver(self, answer):
        self.answers.append(answer)

    def numbers(self):
        return [list(answer.numbers) for answer in self.answers]


class Busy:
    """A worker that takes batches; the test says when one is done."""

    inline, helps_itself, name = False, True, "busy"

    def __init__(self):
        self.batches, self.stopped = [], False

    def start(self, loop, supervisor, sink):
        self.supervisor = supervisor

    def submit(self, batch):
        self.batches.append(batch)

    def end(self):
        """End the batch at hand, as a thread does: take the next one first, then tell the loop."""
        batch = self.batches.pop(0)
        following = self.supervisor.next_batch()
        if following is not None:
            self.batches.append(following)
        return batch, following

    def busy(self):
        return False

    def stop(self):
        self.stopped = True

    def gone(self):
        return self.stopped

    def check(self):
        return None


class Short(Busy):
    """A worker that may run batches on the loop's thread, in no time."""

    inline = True

    def run_here(self, tickets, rows):
        return Outcome(TIMING)


def policy(size=4, **queue):
    return BatchingPolicy(
        max_batch_size=size, preferred=(size,), delay_ns=1_000_000_000, queue=QueuePolicy(**queue)
    )


class Setting:
    """A scheduler over workers that never end by themselves."""

    def __init__(self, former, workers=1, kind=Busy, **options):
        self.loop, self.sink = Loop(), Sink()
        self.workers = [kind() for _ in range(workers)]
        self.statistics = Statistics()
        self.scheduler = Scheduler(former, self.workers, self.statistics, **options)
        self.scheduler.start(self.loop, self.sink)
        self.number = 0

    def ask(self, count):
        for _ in range(count):
            self.number += 1
            self.scheduler.submit(Ticket(self.number, 1, time.monotonic_ns(), [b""], [(1,)]))
        self.loop.turn()

    def done(self, worker, batch, following):
        self.scheduler.done(worker, batch, Outcome(TIMING), following)
        self.loop.turn()


@pytest.fixture
def setting():
    made = []

    def make(*arguments, **options):
        made.append(Setting(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.scheduler.close()


def numbers(batch):
    return [ticket.number for ticket in batch.tickets]


def test_a_full_batch_waits_for_the_thread_and_not_for_the_loop(setting):
    one = setting(BatchFormer(policy(), 1))
    (worker,) = one.workers
    one.ask(8)
    assert list(map(numbers, worker.batches)) == [[1, 2, 3, 4]]
    assert one.scheduler.pending() == 4
    batch, following = worker.end()
    assert numbers(following) == [5, 6, 7, 8]
    assert one.scheduler.pending() == 0
    assert one.scheduler.busy()
    one.done(worker, batch, following)
    assert one.sink.numbers() == [[1, 2, 3, 4]]
    assert one.scheduler.busy()
    one.done(worker, *worker.end())
    assert one.sink.numbers() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert not one.scheduler.busy()
    assert one.statistics.execution_count == 2


def test_a_batch_that_may_still_grow_is_not_handed_over(setting):
    one = setting(BatchFormer(policy(), 1))
    (worker,) = one.workers
    one.ask(7)
    _, following = worker.end()
    assert following is None


def test_no_more_batches_wait_for_threads_than_there_are_threads(setting):
    one = setting(DirectFormer(), workers=2)
    one.ask(9)
    taken = [one.scheduler.next_batch() for _ in range(3)]
    assert [numbers(batch) for batch in taken[:2]] == [[3], [4]]
    assert taken[2] is None


def test_what_was_handed_over_counts_as_formed(setting):
    former = BatchFormer(policy(), 1)
    one = setting(former)
    one.ask(40)
    # As many as without handing over: two per instance beside the one that runs.
    assert len(former.ready) == 1
    assert one.scheduler.pending() == 36


@pytest.mark.parametrize("queue", [{"timeout_ns": 10**12}, {"max_size": 100}, {"allow_override": True}])
def test_a_queue_whose_requests_may_still_leave_hands_nothing_over(setting, queue):
    one = setting(BatchFormer(policy(**queue), 1))
    (worker,) = one.workers
    one.ask(12)
    assert worker.end()[1] is None


def test_a_batch_handed_over_too_late_goes_to_the_instance_that_became_idle(setting):
    one = setting(BatchFormer(policy(), 1))
    (worker,) = one.workers
    one.ask(4)
    # The thread has ended its batch, and the loop hears of it only after more has come.
    batch, following = worker.end()
    assert following is None
    one.ask(4)
    assert worker.batches == []
    one.done(worker, batch, following)
    assert list(map(numbers, worker.batches)) == [[5, 6, 7, 8]]


def test_order_is_kept_over_batches_handed_over(setting):
    one = setting(DirectFormer(), workers=2, preserve_ordering=True)
    first, second = one.workers
    one.ask(4)
    # Idle instances are taken from the end.
    (later,), (earlier,) = first.batches, second.batches
    assert (numbers(earlier), numbers(later)) == ([1], [2])
    batch, following = first.end()
    assert numbers(following) == [3]
    one.done(first, batch, following)
    one.done(first, *first.end())
    assert one.sink.numbers() == []
    one.done(second, *second.end())
    assert one.sink.numbers()[:3] == [[1], [2], [3]]


def test_closing_answers_what_was_handed_over_and_not_begun(setting):
    one = setting(DirectFormer(), preserve_ordering=True)
    (worker,) = one.workers
    one.ask(4)
    one.scheduler.close()
    assert sorted(one.sink.answers[0].numbers) == [2, 3, 4]
    assert one.sink.answers[0].error.text == "Server is stopping"
    batch, following = worker.end()
    assert following is None
    one.done(worker, batch, following)
    assert one.sink.numbers()[1:] == [[1]]
    assert not one.scheduler.busy()


def test_losing_every_instance_answers_what_was_handed_over(setting):
    one = setting(DirectFormer())
    (worker,) = one.workers
    one.ask(3)
    one.scheduler.lost(worker, RequestError("gone"))
    assert sorted(one.sink.answers[0].numbers) == [2, 3]


class Instance:
    """Counts its runs; each waits until it is let go."""

    def __init__(self):
        self.go = threading.Semaphore(0)
        self.closed = threading.Event()

    def run(self, feed):
        self.go.acquire()
        return []

    def close(self):
        self.closed.set()


def test_a_stopped_thread_takes_nothing_more():
    loop, asked = Loop(), []
    instance = Instance()
    settings = SimpleNamespace(name="m", batched=True, inputs=[], outputs=[])
    worker = ThreadWorker("m_0", instance, Executor(settings))
    supervisor = SimpleNamespace(next_batch=lambda: asked.append(1), done=lambda *_: None)
    worker.start(loop, supervisor, None)
    batch = SimpleNamespace(tickets=[Ticket(1, 1, 0, [], [])], rows=1)
    worker.submit(batch)
    instance.go.release()
    while not loop.due:
        time.sleep(0.001)
    assert asked == [1]
    worker.submit(batch)
    worker.stop()
    instance.go.release()
    assert instance.closed.wait(10)
    assert asked == [1]
    assert len(loop.due) == 2


def test_a_batch_that_an_instance_fails_to_take_is_answered_and_the_next_one_runs(setting, caplog):
    one = setting(DirectFormer())
    (worker,) = one.workers
    take = worker.submit

    def refuse(batch):
        worker.submit = take
        raise ValueError("cannot be put into a message")

    worker.submit = refuse
    one.ask(2)
    (answer,) = one.sink.answers
    assert list(answer.numbers) == [1]
    assert "ValueError: cannot be put into a message" in answer.error.text
    assert "did not take a batch" in caplog.text
    assert list(map(numbers, worker.batches)) == [[2]]
    one.done(worker, *worker.end())
    assert not one.scheduler.busy()
    assert one.statistics.failures["BACKEND"] == 1


def test_a_long_queue_of_short_batches_leaves_the_loop_time_for_others(setting, monkeypatch):
    one = setting(DirectFormer(), kind=Short)
    (worker,) = one.workers
    for _ in range(STREAK):
        one.ask(1)
        one.done(worker, *worker.end())
    monkeypatch.setattr(scheduler, "TURN_NS", 0)
    events = []
    for number in range(3):
        one.number += 1
        one.scheduler.submit(Ticket(one.number, 1, time.monotonic_ns(), [b""], [(1,)]))
        one.loop.call_soon(events.append, number)
    one.sink.deliver = lambda answer: events.append("answer")
    one.loop.turn()
    assert worker.batches == []
    assert events == ["answer", 0, 1, 2, "answer", "answer"]
    assert one.scheduler.pending() == 0
    assert one.loop.due == []
