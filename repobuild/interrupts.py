"""Ctrl-C, SIGTERM and SIGHUP, held back while something runs that must not be cut in two.

Starting a thread is such a thing: cut in two, it leaves a thread that runs and is not waited for, or one that
does not run and is (``cannot join thread before it is started``).
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Result = TypeVar("Result")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Hold the signals that end a command back during a block; one that came is delivered at its end.

    Outside the main thread, which never handles signals in Python, the block just runs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    heard = [n for n in SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda n, _frame: caught.append(n)) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if caught:
            signal.raise_signal(caught[0])


def ignore_interrupts() -> None:
    """From now on the signals that end a command do nothing: it is about to end, and its status is settled.

    One that came while the interpreter shuts down would turn the status of a finished command into another.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def undisturbed(work: Callable[[], Result], give_up: Callable[[], object]) -> Result:
    """Do work in a thread of its own, and wait for it.

    Python runs signal handlers in the main thread only. An exception from one in the middle of an event loop
    (gevent's, asyncio's) is printed or ends up in a task that nobody awaits; in a thread there is none.

    Args:
        work: The work; what it raises is raised.
        give_up: Called on an interrupt; makes the work end soon. The interrupt goes on when it has.
    """
    from concurrent.futures import ThreadPoolExecutor, wait

    with ThreadPoolExecutor(1) as pool:
        try:
            with deferred_interrupts():
                future = pool.submit(work)
            wait([future])
        except BaseException:
            give_up()
            raise
    return future.result()


def import_whole(modules: Iterable[str]) -> None:
    """Import native packages with interrupts held back, those that are not installed left out.

    An exception from a signal handler in the middle of ``import onnx`` can end the process with a
    segmentation fault (seen with onnx 1.23), which skips every clean-up.
    """
    with deferred_interrupts():
        for module in modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
