"""What is made once for the whole process, whichever threads ask for it at the same time."""

import threading

import pytest

from repobuild_serve import messages
from repobuild_serve.backends import table


def answers(call):
    """What eight threads get that call at once."""
    found, together = [], threading.Barrier(8)

    def ask():
        together.wait()
        found.append(call())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_every_thread_gets_the_same_message_class(monkeypatch):
    monkeypatch.setattr(messages, "_make_class", messages.functools.cache(messages._make_class.__wrapped__))
    found = answers(messages.model_config_class)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


@pytest.mark.parametrize("name", ["onnxruntime", "pytorch", "python"])
def test_every_thread_gets_the_same_backend(monkeypatch, name):
    together = threading.Barrier(8)
    make = table._make_backend.__wrapped__

    def slow(name):
        # Others get here too, unless they are kept from it.
        try:
            together.wait(0.2)
        except threading.BrokenBarrierError:
            together.reset()
        return make(name)

    monkeypatch.setattr(table, "_make_backend", table.functools.cache(slow))
    found = answers(lambda: table.backend_named(name))
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
