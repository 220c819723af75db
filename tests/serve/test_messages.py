"""The ModelConfig message class."""

import threading

from repobuild_serve import messages


def test_every_thread_gets_the_same_class(monkeypatch):
    monkeypatch.setattr(messages, "_make_class", messages.functools.cache(messages._make_class.__wrapped__))
    found, together = [], threading.Barrier(8)

    def ask():
        together.wait()
        found.append(messages.model_config_class())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
