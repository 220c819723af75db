"""What code of a model can and cannot do in the child process, each tried by a pickle that tries it."""

import json
import os
import platform
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import joblib
import numpy as np
import psutil
import pytest
from sklearn.ensemble import RandomForestClassifier

from repobuild.errors import ConversionFailed, EnvironmentLacking, RepobuildError, UsageProblem
from repobuild.worker import guard, sandbox
from repobuild.worker.arrays import save_batch
from repobuild.worker.host import PLACE, Worker
from repobuild.worker.limits import Limits
from repobuild.worker.sandbox import ARCHITECTURES, filter_program

linux = pytest.mark.skipif(platform.machine() not in ARCHITECTURES, reason="no filter for this machine")
MIB = 1 << 20


class Code:
    """Runs statements when it is unpickled, and answers with a dictionary whose keys the error names."""

    def __init__(self, statements):
        self.statements = statements

    def __reduce__(self):
        return eval, (f"(lambda room: (exec({self.statements!r}, room), room.get('found', {{}}))[1])({{}})",)


@pytest.fixture
def attempt(tmp_path):
    """Load a file that runs statements: the error, which names the keys of what they call ``found``."""
    workers = []

    def run(statements, **limits):
        file = tmp_path / "model.joblib"
        joblib.dump(Code(statements), file)
        worker = Worker(tmp_path, "loading model.joblib", Limits(**limits))
        workers.append(worker)
        with pytest.raises(RepobuildError) as caught:
            worker.call("load", path=str(file), given="model.joblib", inputs=[])
        return caught.value

    run.workers = workers
    yield run
    for worker in workers:
        worker.close()


def keys(error):
    assert error.code == "not-an-estimator", error.render()
    return error.evidence[0].text


@pytest.fixture
def listener():
    """A listening socket of this test, and whether anybody came."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


def nobody_came(server):
    try:
        server.accept()[0].close()
    except TimeoutError:
        return True
    return False


@linux
def test_nothing_of_a_model_reaches_a_listening_socket(attempt, listener):
    error = attempt(f"import socket; socket.create_connection(('127.0.0.1', {listener.getsockname()[1]}), 5)")
    assert nobody_came(listener)
    assert (error.code, type(error)) == ("source-failed", ConversionFailed)
    assert "may not use the network" in error.hint
    [worker] = attempt.workers
    assert worker.sandbox["network"] in ("cut by network namespace", "cut by seccomp filter")


@linux
def test_processes_that_a_model_starts_reach_nothing_either(attempt, listener):
    port = listener.getsockname()[1]
    inner = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
    attempt(
        "import subprocess, sys\n"
        f"done = subprocess.run([sys.executable, '-c', {inner!r}], capture_output=True)\n"
        "found = {f'status {done.returncode}': 1}"
    )
    assert nobody_came(listener)


def in_a_process(code):
    """What code prints in a process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@linux
def test_the_filter_alone_cuts_the_network(listener):
    port = listener.getsockname()[1]
    code = f"""
import socket, json
from repobuild.worker import sandbox
sandbox._leave_network = lambda: "not tried"
print(json.dumps(sandbox.enter().to_dict()))
for make in (
    lambda: socket.create_connection(("127.0.0.1", {port}), 5),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    lambda: socket.socket(socket.AF_INET6),
    lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    lambda: socket.socket(socket.AF_UNIX).connect("/run/docker.sock"),
):
    try:
        make()
    except PermissionError:
        continue
    print("allowed")
a, b = socket.socketpair()
a.send(b"x")
assert b.recv(1) == b"x"
"""
    done = in_a_process(code)
    assert done.returncode == 0, done.stderr
    [line] = done.stdout.splitlines()
    assert json.loads(line)["network"] == "cut by seccomp filter"
    assert nobody_came(listener)


@linux
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_user_without_privileges_gets_the_same_sandbox(listener):
    library = Path(sandbox.__file__).parents[2]
    code = f"""
import os, socket, sys, json
sys.path.insert(0, {str(library)!r})
from repobuild.worker import sandbox
os.setgid(65534); os.setuid(65534)
print(json.dumps(sandbox.enter().to_dict()))
print(os.getuid(), os.getgid())
try:
    socket.socket().connect(("127.0.0.1", {listener.getsockname()[1]}))
except PermissionError:
    print("refused")
"""
    done = in_a_process(code)
    assert done.returncode == 0, done.stderr
    said, who, last = done.stdout.splitlines()
    assert json.loads(said)["network"].startswith("cut by ")
    assert json.loads(said)["processes"] == "kept in one group by seccomp filter"
    assert (who, last) == ("65534 65534", "refused")
    assert nobody_came(listener)


def test_a_system_without_either_says_so(monkeypatch):
    monkeypatch.setattr(sandbox.sys, "platform", "darwin")
    monkeypatch.setattr(sandbox.platform, "system", lambda: "Darwin")
    reached = sandbox.enter()
    assert reached.network == "not cut: Darwin has neither network namespaces nor seccomp"
    assert reached.processes.startswith("not kept in one group")


def test_an_unknown_machine_says_so(monkeypatch):
    monkeypatch.setattr(sandbox, "_leave_network", lambda: "no network namespace (unshare: EPERM)")
    monkeypatch.setattr(sandbox.platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(sandbox.sys, "platform", "linux")
    assert sandbox.enter().network == (
        "not cut: no network namespace (unshare: EPERM); no seccomp filter for riscv64"
    )


def held(worker):
    if not worker.sandbox["writes"].startswith("held"):
        pytest.skip(worker.sandbox["writes"])


def test_a_model_writes_only_into_the_builds_folders(attempt, tmp_path, tmp_path_factory, monkeypatch):
    scratch, outside = tmp_path_factory.mktemp("scratch"), tmp_path_factory.mktemp("outside")
    (outside / "kept").write_text("kept")
    monkeypatch.setenv("TMPDIR", str(scratch))
    attempt(f"""
import json, os, resource, tempfile
found = {{}}
def tried(what, act):
    try:
        act()
        found[what] = 'done'
    except OSError as problem:
        found[what] = problem.errno
tried('new', lambda: open({str(outside / "new")!r}, 'w'))
tried('open', lambda: open({str(outside / "kept")!r}, 'a'))
tried('truncate', lambda: os.truncate({str(outside / "kept")!r}, 0))
tried('remove', lambda: os.remove({str(outside / "kept")!r}))
tried('rename', lambda: os.rename({str(outside / "kept")!r}, {str(tmp_path / PLACE / "kept")!r}))
tried('folder', lambda: os.mkdir({str(outside / "folder")!r}))
tried('link', lambda: os.symlink('/etc', {str(outside / "link")!r}))
tried('signal', lambda: os.kill(os.getppid(), 0))
tried('read', lambda: open({str(outside / "kept")!r}).read())
tried('temporary', lambda: tempfile.TemporaryFile())
tried('null', lambda: open('/dev/null', 'w'))
tried('log', lambda: open('/dev/kmsg', 'w'))
tried('mode', lambda: os.chmod({str(outside / "kept")!r}, 0o777))
tried('owner', lambda: os.chown({str(outside / "kept")!r}, os.getuid(), os.getgid()))
tried('times', lambda: os.utime({str(outside / "kept")!r}, (0, 0)))
tried('attribute', lambda: os.setxattr({str(outside / "kept")!r}, 'user.x', b'x'))
tried('limits', lambda: resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE))
tried('priority', lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19))
tried('processors', lambda: os.sched_setaffinity(os.getppid(), {{0}}))
tried('memory', lambda: os.memfd_create('x'))
json.dump(found, open({str(tmp_path / PLACE / "found")!r}, 'w'))
""")
    held(attempt.workers[0])
    found = json.loads((tmp_path / PLACE / "found").read_text())
    assert found.pop("rename") in (13, 18)
    assert found.pop("signal") in (1, "done")  # kernels before 6.12 do not hold signals
    refused = dict.fromkeys(("new", "open", "truncate", "remove", "folder", "link", "log"), 13)
    others = ("mode", "owner", "times", "attribute", "limits", "priority", "processors", "memory")
    refused |= dict.fromkeys(others, 1)
    assert found == refused | dict.fromkeys(("read", "temporary", "null"), "done")
    assert [p.name for p in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "kept"


ERRNO, ALLOW, KILL = 0x00050000, 0x7FFF0000, 0x80000000


def judged(name, number, *, audit=None, argument=0, second=socket.SOCK_STREAM):
    """What the filter of an architecture answers to a system call; runs the classic BPF program by hand."""
    known = ARCHITECTURES[name]
    program = list(struct.iter_unpack("=HBBI", filter_program(known)))
    data = struct.pack(
        "=IIQ6Q", number, known.audit if audit is None else audit, 0, argument, second, 0, 0, 0, 0
    )
    accumulator = at = 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            [accumulator] = struct.unpack_from("=I", data, value)
            continue
        if code == 0x54:
            accumulator &= value
            continue
        holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[
            code
        ]
        at += yes if holds else no


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_filter_answers_each_call_as_it_should(name):
    numbers = ARCHITECTURES[name].numbers
    for call in ("setsid", "setpgid", "ptrace", "unshare", "setns", "io_uring_setup", "process_vm_writev"):
        assert judged(name, numbers[call]) == ERRNO | 1, call
    assert judged(name, numbers["connect"]) == ERRNO | 13
    assert judged(name, numbers["clone3"]) == ERRNO | 38
    for call in ("socket", "socketpair"):
        for kind in (socket.SOCK_STREAM, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK):
            assert judged(name, numbers[call], argument=socket.AF_UNIX, second=kind) == ALLOW
        for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC):
            assert judged(name, numbers[call], argument=socket.AF_UNIX, second=kind) == ERRNO | 13
        for family in (0, 2, 10, 16, 17, 40):
            assert judged(name, numbers[call], argument=family) == ERRNO | 13, (call, family)
    assert judged(name, numbers["clone"], argument=0x11) == ALLOW
    assert judged(name, numbers["clone"], argument=0x003D0F00) == ALLOW
    for namespace in (0x20000, 0x10000000, 0x20000000, 0x40000000):
        assert judged(name, numbers["clone"], argument=0x11 | namespace) == ERRNO | 1
    for call in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setattr", "sched_setparam"):
        assert judged(name, numbers[call], argument=0) == ALLOW
        assert judged(name, numbers[call], argument=1234) == ERRNO | 1
    for call in ("fchmod", "fchownat", "utimensat", "setxattr", "memfd_create", "setpriority", "fsopen"):
        assert judged(name, numbers[call]) == ERRNO | 1, call
    for number in set(range(480)) - set(numbers.values()):
        assert judged(name, number) == ALLOW, number


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_foreign_abi_ends_the_process(name):
    for audit in {0x40000003, 0xC000003E, 0xC00000B7, 0x40000028} - {ARCHITECTURES[name].audit}:
        assert judged(name, 0, audit=audit) == KILL
    assert judged(name, 0x40000000 | 41) == (KILL if name == "x86_64" else ALLOW)


@linux
@pytest.mark.parametrize("way", ["os.setsid()", "os.setpgid(0, 0)"])
def test_a_model_cannot_leave_its_process_group(attempt, way):
    error = attempt(
        "import os\n"
        "try:\n"
        f"    os.fork() or ({way}, os._exit(0))\n"
        "except PermissionError:\n"
        "    os._exit(0)\n"
        "status = os.wait()[1]\n"
        "found = {f'group {os.getpgrp() == os.getpid()}': 1}"
    )
    assert "group True" in keys(error)


@linux
def test_a_daemon_of_a_model_ends_with_the_build(attempt, tmp_path):
    pid_file = tmp_path / PLACE / "pid"
    attempt(f"""
import os, time
if os.fork() == 0:
    try:
        os.setsid()
    except PermissionError:
        pass
    if os.fork() == 0:
        open({str(pid_file)!r}, "w").write(str(os.getpid()))
        time.sleep(300)
    os._exit(0)
os.wait()
while not os.path.exists({str(pid_file)!r}) or not open({str(pid_file)!r}).read():
    time.sleep(0.01)
""")
    daemon = int(pid_file.read_text())
    assert psutil.pid_exists(daemon)
    attempt.workers[0].close()
    assert soon(lambda: gone(daemon)), "the daemon lives on"


def gone(pid):
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


def test_a_native_busy_loop_is_given_up(attempt):
    error = attempt("sum(iter(int, 1))", seconds={"load": 3.0})
    assert error.code == "worker-timeout"
    assert "REPOBUILD_WORKER_TIMEOUT" in error.hint


def test_processor_time_runs_out(attempt):
    error = attempt("sum(iter(int, 1))", cpu_seconds=3)
    assert error.code == "worker-cpu-time"


ORPHAN = """
import json, os, pathlib, sys
from repobuild.worker.host import PLACE, Worker
from repobuild.worker.limits import Limits
folder = pathlib.Path(sys.argv[1])
worker = Worker(folder, "loading", Limits(seconds={"load": 3.0}))
print(worker._process.pid, flush=True)
worker._read_line()
question = {"path": str(folder / "model.joblib"), "given": "m", "inputs": []}
os.write(worker._ask, json.dumps({"operation": "load", "number": 1, **question}).encode() + b"\\n")
sys.stdin.read()
"""


def test_a_busy_native_loop_ends_soon_after_its_parent_was_killed(tmp_path):
    begun = tmp_path / PLACE / "begun"
    joblib.dump(Code(f"open({str(begun)!r}, 'w').close(); sum(iter(int, 1))"), tmp_path / "model.joblib")
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        child = int(parent.stdout.readline())
        assert soon(begun.exists)
        parent.send_signal(signal.SIGKILL)
        assert soon(lambda: gone(child), 120), "the child lives on"


def test_a_file_without_end_is_stopped(attempt, tmp_path):
    error = attempt(
        f"f = open({str(tmp_path / PLACE / 'big')!r}, 'wb')\nwhile True: f.write(bytes(1 << 20))",
        file_bytes=8 * MIB,
    )
    assert (error.code, type(error)) == ("worker-file-too-large", EnvironmentLacking)
    assert (tmp_path / PLACE / "big").stat().st_size == 8 * MIB


def test_output_without_end_is_stopped_and_named(attempt, tmp_path):
    error = attempt(
        "import os\nwhile True: os.write(1, b'noise ' * 100_000)", file_bytes=4 * MIB, seconds={"load": 60.0}
    )
    assert error.code == "worker-file-too-large"
    assert (tmp_path / "worker.log").stat().st_size <= 4 * MIB


@pytest.fixture
def free_after(monkeypatch):
    """Make the disk's free space fall from 100 MiB to so many bytes once a question has begun."""

    def fall(left):
        free = [100 * MIB]
        begin = guard.Guard.begin

        def begun(self):
            begin(self)
            free[0] = left

        monkeypatch.setattr(guard, "_free_bytes", lambda folder: free[0])
        monkeypatch.setattr(guard.Guard, "begin", begun)

    return fall


def test_many_files_that_fill_the_disk_are_stopped(attempt, free_after):
    free_after(50 * MIB)
    error = attempt("import time; time.sleep(100)", disk_bytes=32 * MIB)
    assert error.code == "worker-fills-disk"
    assert soon(lambda: gone(attempt.workers[0]._process.pid))


def test_the_disk_may_not_be_filled_to_its_end(attempt, free_after):
    free_after(5 * MIB)
    assert attempt("import time; time.sleep(100)").code == "worker-fills-disk"


def test_processes_without_end_are_stopped(attempt):
    error = attempt(
        "import os, time\nfor _ in range(200): os.fork() or (time.sleep(100), os._exit(0))\ntime.sleep(100)",
        processes=40,
    )
    assert error.code == "worker-too-many-processes"
    group = attempt.workers[0]._process.pid
    assert soon(lambda: guard._group_use(group)[0] == 0)


def test_memory_of_several_processes_is_added_up(attempt):
    error = attempt(
        "import os, time\n"
        "for _ in range(4): os.fork() or (setattr(os, 'held', b'x' * (300 << 20)), time.sleep(100))\n"
        "time.sleep(100)",
        memory=1 << 30,
    )
    assert error.code == "worker-out-of-memory"
    assert "5 processes" in error.message


def test_a_model_may_not_take_all_memory_of_the_machine(attempt, monkeypatch):
    monkeypatch.setattr(guard, "_machine_memory", lambda: 500 * MIB)
    error = attempt("import time; held = b'x' * (600 << 20); time.sleep(100)")
    assert error.code == "worker-out-of-memory"
    assert "more than 0.4 GiB" in error.message


def test_a_crash_leaves_no_core_file(attempt, tmp_path):
    error = attempt("import os; os.kill(os.getpid(), 11)")
    assert error.code == "worker-crashed"
    assert sorted(p.name for p in tmp_path.rglob("*")) == [PLACE, "model.joblib", "worker.log"]


def test_the_limits_hold_in_the_child(attempt):
    error = attempt(
        "import resource as r\n"
        "found = {f'{n} {r.getrlimit(getattr(r, n))}': 1 for n in"
        " ('RLIMIT_CORE', 'RLIMIT_FSIZE', 'RLIMIT_NOFILE', 'RLIMIT_CPU')}\n"
        "found[[l for l in open('/proc/self/status') if l.startswith('NoNewPrivs')][0].split()[1]] = 1",
        open_files=200, cpu_seconds=50, file_bytes=1 << 30,
    )  # fmt: skip
    text = keys(error)
    for said in ("CORE (1, 1)", "FSIZE (1073741824, 1073741824)", "NOFILE (200, 200)", "CPU (50, 55)", "'1'"):
        assert said in text


def test_a_forest_answers_on_several_threads(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 3))
    forest = RandomForestClassifier(8, n_jobs=2, random_state=0).fit(rows, rows[:, 0] > 0)
    joblib.dump(forest, tmp_path / "model.joblib")
    save_batch(tmp_path / "q.npz", {"X": rows})
    worker = Worker(tmp_path, "asking")
    try:
        worker.call("load", path=str(tmp_path / "model.joblib"), given="m", inputs=[])
        worker.call(
            "predict", batch=str(tmp_path / "q.npz"), to=str(tmp_path / PLACE / "a.npz"), one_by_one=False
        )
    finally:
        worker.close()
    assert (tmp_path / PLACE / "a.npz").exists()


@pytest.mark.parametrize(
    ("text", "load", "export", "predict"),
    [("900", 900, 900, 900), ("load=60, predict=0.5", 60, 600, 0.5), ("", 600, 600, 600)],
)
def test_time_limits_come_from_the_environment(text, load, export, predict):
    limits = Limits.from_environment({"REPOBUILD_WORKER_TIMEOUT": text})
    assert [limits.seconds_for(o) for o in ("load", "export", "predict")] == [load, export, predict]


@pytest.mark.parametrize(
    ("text", "size"), [("8GiB", 8 << 30), ("8 g", 8 << 30), ("512M", 512 << 20), ("1073741824", 1 << 30)]
)
def test_the_memory_limit_comes_from_the_environment(text, size):
    assert Limits.from_environment({"REPOBUILD_WORKER_MEMORY": text}).memory == size


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(
            ("REPOBUILD_WORKER_TIMEOUT", t)
            for t in ("soon", "-1", "0", "nan", "inf", "load=", "train=4", "=")
        ),
        *(("REPOBUILD_WORKER_MEMORY", t) for t in ("lots", "0", "1KB", "-8G", "1e3G", "8 PB")),
    ],
)
def test_a_limit_that_cannot_be_understood_is_refused(tmp_path, monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(UsageProblem) as caught:
        Worker(tmp_path, "loading")
    assert caught.value.code == "worker-limit-invalid"
    assert name in caught.value.message


def test_a_limit_of_the_environment_holds(tmp_path, monkeypatch):
    monkeypatch.setenv("REPOBUILD_WORKER_MEMORY", "2GiB")
    joblib.dump(Code("b = bytearray(3 << 30)"), tmp_path / "m")
    worker = Worker(tmp_path, "loading")
    try:
        with pytest.raises(EnvironmentLacking) as caught:
            worker.call("load", path=str(tmp_path / "m"), given="m", inputs=[])
    finally:
        worker.close()
    assert "more than 2.0 GiB" in caught.value.message
