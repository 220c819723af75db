"""The child process: what it may see, and what is said when it fails."""

import time

import joblib
import psutil
import pytest

from repobuild.errors import ConversionFailed, EnvironmentLacking, InputInvalid
from repobuild.worker.host import Worker


class Naughty:
    """Evaluates an expression when it is unpickled."""

    def __init__(self, expression):
        self.expression = expression

    def __reduce__(self):
        return eval, (self.expression,)


@pytest.fixture
def load(tmp_path):
    """Load a hostile file in a worker: ``load(expression, timeout=...)``."""
    workers = []

    def run(expression, **limits):
        file = tmp_path / "model.joblib"
        joblib.dump(Naughty(expression), file)
        worker = Worker(tmp_path, "loading model.joblib", **limits)
        workers.append(worker)
        return worker.call("load", path=str(file), given="model.joblib", inputs=[])

    yield run
    for worker in workers:
        worker.close()


def test_a_child_that_dies_by_a_signal_is_named(load):
    with pytest.raises(EnvironmentLacking) as caught:
        load("__import__('os').kill(__import__('os').getpid(), 11)")
    assert caught.value.code == "worker-crashed"
    assert "SIGSEGV" in caught.value.message


def test_a_child_that_ends_is_named_with_its_last_words(load):
    with pytest.raises(EnvironmentLacking) as caught:
        load("(print('goodbye', flush=True), __import__('os')._exit(3))")
    assert "exit status 3" in caught.value.message
    assert "goodbye" in caught.value.render()


def test_a_child_that_hangs_is_given_up(load):
    with pytest.raises(EnvironmentLacking) as caught:
        load("__import__('time').sleep(100)", timeout=3.0)
    assert caught.value.code == "worker-timeout"


def test_a_child_that_eats_memory_is_stopped(load):
    with pytest.raises(EnvironmentLacking) as caught:
        load("bytearray(8 << 30)", memory=4 << 30)
    assert caught.value.code == "worker-out-of-memory"


def test_an_exception_of_the_model_is_an_answer(load):
    with pytest.raises(ConversionFailed) as caught:
        load("1/0")
    assert caught.value.code == "source-failed"
    assert "ZeroDivisionError" in caught.value.render()


def test_the_child_sees_no_secrets(load, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very secret")
    with pytest.raises(InputInvalid) as caught:
        load("{k: 1 for k in __import__('os').environ if 'SECRET' in k or k == 'PATH'}")
    assert caught.value.code == "not-an-estimator"
    assert "with keys 'PATH'" in caught.value.render()


def test_noise_on_standard_output_does_not_disturb_the_conversation(load):
    with pytest.raises(InputInvalid) as caught:
        load("print('{\"answer\": {}}') or {'a': 1}")
    assert caught.value.code == "not-an-estimator"


def test_closing_ends_what_the_child_started(tmp_path):
    file = tmp_path / "model.joblib"
    pid_file = tmp_path / "pid"
    start = "str(__import__('subprocess').Popen(['sleep', '100']).pid)"
    expression = f"open({str(pid_file)!r}, 'w').write({start}) and {{}}"
    joblib.dump(Naughty(expression), file)
    worker = Worker(tmp_path, "loading")
    with pytest.raises(InputInvalid):
        worker.call("load", path=str(file), given="m", inputs=[])
    worker.close()
    grandchild = int(pid_file.read_text())
    for _ in range(100):
        if not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    pytest.fail("the grandchild lives on")
