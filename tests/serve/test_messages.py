"""What is made once for the whole process, whichever threads ask for it at the same time."""

import functools
import importlib.util
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from repobuild_serve import messages
from repobuild_serve.backends import table
from repobuild_serve.once import made_once


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


def the_same_object(call):
    found = answers(call)
    return len(found) == 8 and len(set(map(id, found))) == 1


def slowly(call):
    """A function that lets every other thread come to the same place, unless they are kept from it."""

    def slow(*arguments):
        time.sleep(0.1)
        return call(*arguments)

    return slow


def test_what_is_made_once_is_the_same_object_for_every_thread():
    assert the_same_object(made_once(slowly(object)))
    assert not the_same_object(functools.cache(slowly(object)))


def test_what_could_not_be_made_is_tried_again():
    results = iter([ValueError("not this time"), "made"])

    @made_once
    def make():
        result = next(results)
        if isinstance(result, ValueError):
            raise result
        return result

    with pytest.raises(ValueError, match="not this time"):
        make()
    assert (make(), make()) == ("made", "made")


def test_every_thread_gets_the_same_message_class(monkeypatch):
    # A module of its own, which has made nothing yet.
    spec = importlib.util.spec_from_file_location("fresh_messages", messages.__file__)
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    monkeypatch.setattr(fresh, "_descriptor_literal", slowly(fresh._descriptor_literal))
    assert the_same_object(fresh.model_config_class)


class SlowBackend:
    platform, default_filename, default_count = "", "model.txt", 1

    def __init__(self):
        time.sleep(0.1)


def test_every_thread_gets_the_same_backend(monkeypatch):
    monkeypatch.setitem(sys.modules, "slow_backend", SimpleNamespace(Backend=SlowBackend))
    monkeypatch.setitem(table._BUILT_IN, "slow-for-this-test", "slow_backend:Backend")
    assert the_same_object(lambda: table.backend_named("slow-for-this-test"))
