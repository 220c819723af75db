"""The child process: what it may see, and what is said when it fails."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import joblib
import numpy as np
import psutil
import pytest
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression

from repobuild.errors import ConversionFailed, EnvironmentLacking, InputInvalid
from repobuild.worker.arrays import load_batch, save_batch
from repobuild.worker.host import PLACE, Worker
from repobuild.worker.limits import Limits

ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
CLASSES = (ROWS[:, 0] > 0).astype(int)


class Naughty:
    """Evaluates an expression when it is unpickled."""

    def __init__(self, expression):
        self.expression = expression

    def __reduce__(self):
        return eval, (self.expression,)


@pytest.fixture
def load(tmp_path):
    """Load a hostile file in a worker: ``load(expression, memory=...)``."""
    workers = []

    def run(expression, **limits):
        file = tmp_path / "model.joblib"
        joblib.dump(Naughty(expression), file)
        worker = Worker(tmp_path, "loading model.joblib", Limits(**limits))
        workers.append(worker)
        return worker.call("load", path=str(file), given="model.joblib", inputs=[])

    run.workers = workers
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
        load("__import__('time').sleep(100)", seconds={"load": 3.0})
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


SECRETS = ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "SSH_AUTH_SOCK", "https_proxy", "REPOBUILD_WORKER_MEMORY")
ALLOWED = {
    "HOME", "JOBLIB_TEMP_FOLDER", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "LANG", "LC_ALL", "LC_CTYPE",
    "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "TMPDIR", "VIRTUAL_ENV", "PATH", "PYTHONPATH", "LD_LIBRARY_PATH",
    "PWD", "SYSTEMROOT", "KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK", "ORT_DISABLE_TELEMETRY",
}  # fmt: skip


def test_the_child_sees_no_secrets_proxies_or_home(load, monkeypatch, tmp_path):
    for name in SECRETS:
        monkeypatch.setenv(name, "4GiB")
    seen = tmp_path / PLACE / "seen"
    look = "__import__('json').dumps(dict(__import__('os').environ))"
    with pytest.raises(InputInvalid):
        load(f"open({str(seen)!r}, 'w').write({look}) and {{}}")
    environment = json.loads(seen.read_text())
    assert environment["HOME"] == str(tmp_path / PLACE)
    assert set(environment) <= ALLOWED


def test_noise_on_standard_output_does_not_disturb_the_conversation(load):
    with pytest.raises(InputInvalid) as caught:
        load("print('{\"answer\": {}}') or {'a': 1}")
    assert caught.value.code == "not-an-estimator"


def test_closing_ends_what_the_child_started(tmp_path):
    file = tmp_path / "model.joblib"
    pid_file = tmp_path / PLACE / "pid"
    start = "str(__import__('subprocess').Popen(['sleep', '100']).pid)"
    expression = f"open({str(pid_file)!r}, 'w').write({start}) and {{}}"
    joblib.dump(Naughty(expression), file)
    worker = Worker(tmp_path, "loading")
    with pytest.raises(InputInvalid):
        worker.call("load", path=str(file), given="m", inputs=[])
    worker.close()
    grandchild = int(pid_file.read_text())
    assert soon(lambda: is_gone(grandchild)), "the grandchild lives on"


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def soon(holds, seconds=20):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def left_in_shared_memory(worker):
    """Names of loky's semaphores and joblib's folders; they hold the number of the process that made them."""
    made = re.compile(rf"[-_]{worker._process.pid}[-_]")
    return [path.name for path in Path("/dev/shm").iterdir() if made.search(path.name)]


def in_python(code, *arguments, limit=None):
    """A process that runs code, with a hard limit of its address space in bytes."""
    limits = None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=limits,  # noqa: PLW1509
    )


LOAD = """
    import pathlib, sys
    from repobuild.errors import RepobuildError
    from repobuild.worker.host import PLACE, Worker
    folder = pathlib.Path(sys.argv[1])
    worker = Worker(folder, "loading")
    print(worker._process.pid, flush=True)
    try:
        worker.call("load", path=str(folder / "model.joblib"), given="m", inputs=[])
    except RepobuildError as problem:
        print(problem.render())
    if len(sys.argv) > 2:
        input()
    worker.close()
"""


@pytest.fixture
def fitted(tmp_path):
    """A worker that holds an estimator: ``fitted(estimator)``."""
    workers = []

    def run(estimator):
        file = tmp_path / "model.joblib"
        joblib.dump(estimator, file)
        worker = Worker(tmp_path, "asking model.joblib")
        workers.append(worker)
        worker.call("load", path=str(file), given="model.joblib", inputs=[])
        return worker

    yield run
    for worker in workers:
        worker.close()


def test_a_lower_hard_limit_of_memory_is_kept_and_named(tmp_path):
    joblib.dump(Naughty("bytearray(9 << 30)"), tmp_path / "model.joblib")
    with in_python(LOAD, tmp_path, limit=8_000_000 << 10) as process:
        told = process.communicate()[0]
    assert "error[worker-out-of-memory]" in told
    assert "more than 7.6 GiB" in told


def test_an_estimator_loads_under_a_lower_hard_limit(tmp_path):
    joblib.dump(LogisticRegression().fit(ROWS, CLASSES), tmp_path / "model.joblib")
    with in_python(LOAD, tmp_path, limit=8_000_000 << 10) as process:
        told = process.communicate()[0]
    assert (process.returncode, told.count("\n")) == (0, 1), told


def test_a_child_that_cannot_start_is_not_blamed_on_the_model(tmp_path, load, monkeypatch):
    shadow = tmp_path / "shadow" / "repobuild"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise RuntimeError('no such luck')")
    monkeypatch.setenv("PYTHONPATH", str(shadow.parent))
    with pytest.raises(EnvironmentLacking) as caught:
        load("{}")
    assert caught.value.code == "worker-start-failed"
    assert "no such luck" in caught.value.render()


def test_packages_that_cannot_be_imported_are_not_blamed_on_the_model(tmp_path, load, monkeypatch):
    shadow = tmp_path / "shadow" / "skl2onnx"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise ImportError('libmissing.so.1')")
    monkeypatch.setenv("PYTHONPATH", str(shadow.parent))
    with pytest.raises(EnvironmentLacking) as caught:
        load("{}")
    assert caught.value.code == "worker-start-failed"
    assert "libmissing" in caught.value.render()


def test_a_folder_without_room_for_the_log_is_an_error_of_the_system(tmp_path):
    (tmp_path / "worker.log").symlink_to(tmp_path / "missing" / "log")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(EnvironmentLacking) as caught:
        Worker(tmp_path, "loading")
    assert caught.value.code == "os-error"
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("name", ["PYTHONPATH", "LD_LIBRARY_PATH", "PATH"])
def test_relative_paths_of_the_environment_mean_the_same_in_the_child(load, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv(name, os.pathsep.join([os.environ.get(name, "/nowhere"), "some/libs"]))
    with pytest.raises(InputInvalid) as caught:
        load(f"{{__import__('os').environ[{name!r}].split(':')[-1]: 1}}")
    assert f"with keys '{Path.cwd() / 'some/libs'}'" in caught.value.render()


def test_processes_of_joblib_leave_nothing_behind(tmp_path, load):
    code = "__import__('joblib').Parallel(2)(__import__('joblib').delayed(abs)(i) for i in range(4)) and {}"
    with pytest.raises(InputInvalid):
        load(code)
    [worker] = load.workers
    assert left_in_shared_memory(worker), "joblib started no processes"
    worker.close()
    assert left_in_shared_memory(worker) == []


def test_estimators_with_jobs_start_no_processes(fitted, tmp_path):
    estimator = BaggingClassifier(LogisticRegression(), n_estimators=4).fit(ROWS, CLASSES)
    worker = fitted(estimator.set_params(n_jobs=2))
    save_batch(tmp_path / "q.npz", {"X": ROWS})
    worker.call(
        "predict", batch=str(tmp_path / "q.npz"), to=str(tmp_path / PLACE / "a.npz"), one_by_one=False
    )
    assert psutil.Process(worker._process.pid).children(recursive=True) == []
    assert left_in_shared_memory(worker) == []
    found = load_batch(tmp_path / PLACE / "a.npz")
    np.testing.assert_allclose(found["probabilities"], estimator.set_params(n_jobs=1).predict_proba(ROWS))


def test_only_the_answers_that_are_asked_for_are_computed(fitted, tmp_path):
    worker = fitted(LogisticRegression().fit(ROWS, CLASSES))
    save_batch(tmp_path / "q.npz", {"X": ROWS})
    asked = {"batch": str(tmp_path / "q.npz"), "to": str(tmp_path / PLACE / "a.npz"), "one_by_one": True}
    worker.call("predict", **asked, answers=["probabilities"])
    assert list(load_batch(tmp_path / PLACE / "a.npz")) == ["probabilities"]
    worker.call("predict", **asked)
    assert list(load_batch(tmp_path / PLACE / "a.npz")) == ["label", "probabilities"]


@pytest.mark.parametrize("busy", ["__import__('time').sleep(100)", "[i for i in iter(int, 1)]"])
def test_a_worker_that_is_busy_ends_with_its_parent(tmp_path, busy):
    begun = tmp_path / PLACE / "begun"
    joblib.dump(Naughty(f"open({str(begun)!r}, 'w').close() or {busy}"), tmp_path / "model.joblib")
    with in_python(LOAD, tmp_path) as parent:
        child = int(parent.stdout.readline())
        assert soon(begun.exists)
        parent.send_signal(signal.SIGKILL)
        assert soon(lambda: is_gone(child)), "the worker lives on"


def test_what_an_idle_worker_started_ends_with_its_parent(tmp_path):
    pid_file = tmp_path / PLACE / "pid"
    start = "str(__import__('subprocess').Popen(['sleep', '100']).pid)"
    code = f"open({str(pid_file)!r}, 'w').write({start}) and {{}}"
    joblib.dump(Naughty(code), tmp_path / "model.joblib")
    with in_python(LOAD, tmp_path, "wait") as parent:
        child = int(parent.stdout.readline())
        assert "not-an-estimator" in parent.stdout.readline()
        grandchild = int(pid_file.read_text())
        parent.send_signal(signal.SIGKILL)
        assert soon(lambda: is_gone(child)), "the worker lives on"
        assert soon(lambda: is_gone(grandchild)), "the grandchild lives on"


@pytest.mark.parametrize("descriptors", [True, False])
def test_a_dead_child_is_noticed_while_another_holds_its_pipe(load, monkeypatch, descriptors):
    if not descriptors:
        monkeypatch.delattr(os, "pidfd_open")
    with pytest.raises(EnvironmentLacking) as caught:
        load("__import__('os').fork() and __import__('os')._exit(3) or __import__('time').sleep(100)")
    assert caught.value.code == "worker-crashed"
    assert "exit status 3" in caught.value.message


@pytest.mark.parametrize(
    "garbage", ["garbage\\n", "\\n", "{}\\n", "[1]\\n", '{"number": 0, "answer": {}}\\n', "half a line"]
)
def test_garbage_on_the_answer_pipe_is_named(load, garbage):
    code = f"""[__import__('os').write(int(__import__('sys').argv[2]), b'{garbage}')] and {{}}"""
    with pytest.raises(EnvironmentLacking) as caught:
        load(code)
    assert caught.value.code == "worker-garbled"


@pytest.mark.parametrize("operation", ["export", "predict"])
def test_a_full_disk_is_not_blamed_on_the_model(fitted, tmp_path, operation):
    worker = fitted(LogisticRegression().fit(ROWS, CLASSES))
    save_batch(tmp_path / "q.npz", {"X": ROWS})
    asked = {"predict": {"batch": str(tmp_path / "q.npz"), "one_by_one": False}, "export": {"opset": 18}}
    with pytest.raises(EnvironmentLacking) as caught:
        worker.call(operation, to="/dev/full", **asked[operation])
    assert caught.value.code == "disk-full"
    assert "while writing" in caught.value.message


def test_a_full_disk_of_the_models_own_code_is_its_own(load):
    with pytest.raises(ConversionFailed) as caught:
        load("open('/dev/full', 'w', 1).write('\\n')")
    assert caught.value.code == "source-failed"
