"""The step into the repository, killed before each of its operations on the file system."""

import hashlib
import json
import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from repobuild.emit import commit as commit_module
from repobuild.emit.commit import commit, recover, settle
from repobuild.emit.config import read_config
from repobuild.emit.model import Emission
from repobuild.emit.versions import look
from repobuild.emit.workshop import Workshop, locked
from repobuild.errors import EnvironmentLacking, InputInvalid, RepobuildError, VerificationFailed

CONFIG = """\
name: "m"
backend: "onnxruntime"
max_batch_size: 8
input [ {{ name: "X" data_type: TYPE_FP32 dims: [ 2 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] label_filename: "{labels}" }} ]
dynamic_batching {{ max_queue_delay_microseconds: {delay} }}
model_warmup {{
  name: "w"
  batch_size: 1
  inputs {{ key: "X" value {{ data_type: TYPE_FP32 dims: [ 2 ] input_data_file: "{warmup}" }} }}
}}
"""


def warmup_name(content):
    """The name that a warm-up file with this content bears."""
    return f"X-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def label_name(content):
    """The name that a label file with this content bears."""
    return f"y_labels-{hashlib.sha256(content.encode()).hexdigest()[:12]}.txt"


def stage(shop, version, model, delay=0, warmup="first row"):
    """Fill a workshop with a complete staged model."""
    folder = shop.models / "m"
    (folder / str(version)).mkdir(parents=True)
    (folder / str(version) / "model.onnx").write_text(model)
    (folder / "warmup").mkdir()
    (folder / "warmup" / warmup_name(warmup)).write_bytes(warmup.encode())
    (folder / label_name(warmup)).write_text(warmup)  # labels that change with the warm-up row
    text = CONFIG.format(delay=delay, warmup=warmup_name(warmup), labels=label_name(warmup))
    (folder / "config.pbtxt").write_text(text)


def step_in(shop, version, seen=None):
    """Commit what is staged, as the build that saw the repository in a state (by default: as it is)."""
    emission = Emission(
        folder=shop.models / "m",
        version=version,
        signature=None,
        config=None,
        config_text="",
        kept=False,
        warmup_files=(),
        existing=seen or look(shop.repository, "m"),
        notes=(),
    )

    def write_records(number):
        (shop.meta / "manifest.json").write_text(json.dumps({"version": number}))
        (shop.meta / "report.json").write_text("{}")

    return commit(shop, "m", emission, write_records)


def build(repository, version, model, **staged):
    """A whole build: stage and commit."""
    with Workshop(repository) as shop:
        recover(shop)
        stage(shop, version, model, **staged)
        return step_in(shop, version)


def served(repository):
    """What a server would load: the model of the latest version, its queue delay; what it names is there."""
    folder = repository / "m"
    if not folder.exists():
        return None
    _, message = read_config(folder)
    versions = [int(p.name) for p in folder.iterdir() if p.name.isdigit()]
    [warm] = message.model_warmup
    name = warm.inputs["X"].input_data_file
    assert name == warmup_name((folder / "warmup" / name).read_text())
    labels = message.output[0].label_filename
    assert labels == label_name((folder / labels).read_text())
    model = (folder / str(max(versions)) / "model.onnx").read_text()
    return model, message.dynamic_batching.max_queue_delay_microseconds


def leftovers(repository):
    """Files below the repository and its state folder that no finished build leaves."""
    state = repository.with_name(repository.name + ".repobuild")
    return [p.name for p in (*state.glob(".journal*"), *state.glob(".staging/*"))]


class Killed(BaseException):
    """Stands for SIGKILL inside the child."""


OPERATIONS = [
    (Path, "rename"),
    (Path, "replace"),
    (Path, "unlink"),
    (Path, "mkdir"),
    (Path, "rmdir"),
    (os, "fsync"),
]


def _build_until(repository, step, arguments, finished):
    """Child: build, and end without any clean-up before the given operation on the file system."""
    seen = 0
    armed = False

    def counted(original):
        def call(*args, **kwargs):
            nonlocal seen
            if armed:
                seen += 1
                if seen == step:
                    os._exit(9)
            return original(*args, **kwargs)

        return call

    for owner, name in OPERATIONS:
        setattr(owner, name, counted(getattr(owner, name)))
    version, model, staged = arguments
    with Workshop(repository) as shop:
        recover(shop)
        stage(shop, version, model, **staged)
        armed = True
        step_in(shop, version)
        armed = False
    finished.set()
    os._exit(0)


def kill_everywhere(tmp_path, before, arguments, old, new, between=None):
    """Kill a build before its first, second, ... operation; check what serves then and after recovery."""
    context = multiprocessing.get_context("fork")
    outcomes = set()
    for step in range(1, 200):
        repository = tmp_path / f"kill{step}" / "repository"
        repository.parent.mkdir()
        before(repository)
        finished = context.Event()
        child = context.Process(target=_build_until, args=(repository, step, arguments, finished))
        child.start()
        child.join()
        assert served(repository) in (old, new, between or old), f"step {step}"
        with Workshop(repository) as shop:
            recover(shop)
        now = served(repository)
        assert now in (old, new), f"step {step}, after recovery"
        assert leftovers(repository) == [], f"step {step}"
        names = {p.name for p in repository.rglob("*")} if repository.exists() else set()
        assert not any(n.startswith(".") for n in names)
        if now is not None:
            files = {p.name for p in (repository / "m" / "warmup").iterdir()}
            used = {
                i.input_data_file
                for w in read_config(repository / "m")[1].model_warmup
                for i in w.inputs.values()
            }
            assert files == used, f"step {step}"
            labels = {p.name for p in (repository / "m").glob("*.txt")}
            assert labels == {read_config(repository / "m")[1].output[0].label_filename}, f"step {step}"
            state = repository.with_name("repository.repobuild")
            versions = {p.name for p in (repository / "m").iterdir() if p.name.isdigit()}
            assert {p.name for p in (state / "m").iterdir()} == versions
        outcomes.add(now)
        build(repository, *arguments[:2], **arguments[2])
        assert served(repository) == new
        shutil.rmtree(repository.parent)
        if finished.is_set():
            break
    else:
        pytest.fail("the build never finished")
    assert step > 10
    return outcomes


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_new_model_killed_anywhere_is_absent_or_whole(tmp_path):
    def nothing(repository):
        pass

    outcomes = kill_everywhere(tmp_path, nothing, (1, "first", {}), None, ("first", 0))
    assert outcomes == {None, ("first", 0)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_further_version_killed_anywhere_serves_the_old_or_the_new(tmp_path):
    def first(repository):
        build(repository, 1, "first")

    old, new = ("first", 0), ("second", 7)
    arguments = (2, "second", {"delay": 7, "warmup": "second row"})
    # Until recovery, the new version may serve under the old configuration, which describes it too.
    assert kill_everywhere(tmp_path, first, arguments, old, new, between=("second", 0)) == {old, new}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_new_configuration_alone_killed_anywhere_is_old_or_new(tmp_path):
    def first(repository):
        build(repository, 1, "first")

    old, new = ("first", 0), ("first", 9)
    outcomes = kill_everywhere(tmp_path, first, (2, "first", {"delay": 9}), old, new)
    assert outcomes == {old, new}


def test_versions_count_up_and_equal_content_keeps_its_version(tmp_path, tree):
    repository = tmp_path / "repository"
    assert (build(repository, 1, "a").version, served(repository)) == (1, ("a", 0))
    before = tree(repository)
    again = build(repository, 2, "a")
    assert (again.version, again.changed) == (1, False)
    assert tree(repository) == before
    assert build(repository, 2, "b").version == 2
    assert build(repository, 3, "b", delay=5) == commit_module.Outcome(2, changed=True, new_version=False)
    assert served(repository) == ("b", 5)
    assert sorted(p.name for p in (repository / "m").iterdir()) == [
        "1",
        "2",
        "config.pbtxt",
        "warmup",
        label_name("first row"),
    ]


def test_a_version_number_that_was_taken_meanwhile_is_passed_over(tmp_path):
    repository = tmp_path / "repository"
    build(repository, 1, "a")
    (repository / "m" / "2").mkdir()
    (repository / "m" / "2" / "model.onnx").write_text("by hand")
    assert build(repository, 2, "b").version == 3


def test_a_version_that_was_removed_does_not_come_back_under_its_number(tmp_path):
    repository = tmp_path / "repository"
    build(repository, 1, "a")
    build(repository, 2, "b")
    shutil.rmtree(repository / "m" / "2")
    assert build(repository, 3, "c").version == 3


def test_another_build_that_changed_the_configuration_meanwhile_wins(tmp_path, tree):
    repository = tmp_path / "repository"
    build(repository, 1, "a")
    with Workshop(repository) as shop:
        stage(shop, 2, "b")
        seen = look(shop.repository, "m")
        build(repository, 2, "c", delay=3)
        before = tree(repository)
        with pytest.raises(VerificationFailed) as caught:
            step_in(shop, 2, seen)
    assert caught.value.code == "repository-changed"
    assert tree(repository) == before


def test_a_refused_build_leaves_nothing_at_all(tmp_path):
    def refused():
        with Workshop(tmp_path / "deep" / "repository") as shop:
            assert shop.work.is_dir()
            raise InputInvalid("samples-unfit", "no")

    with pytest.raises(RepobuildError):
        refused()
    assert list(tmp_path.iterdir()) == []


def test_a_refused_build_leaves_the_state_of_others_alone(tmp_path, tree):
    repository = tmp_path / "repository"
    build(repository, 1, "a")
    before = tree(tmp_path)
    with pytest.raises(RepobuildError), Workshop(repository):
        raise InputInvalid("samples-unfit", "no")
    assert tree(tmp_path) == before


def test_a_build_at_work_is_not_swept_by_another(tmp_path):
    repository = tmp_path / "repository"
    with Workshop(repository) as first:
        with Workshop(repository) as second:
            recover(second)
            assert first.work.is_dir()
        assert first.work.is_dir()


def test_a_dead_build_is_swept(tmp_path):
    repository = tmp_path / "repository"
    build(repository, 1, "a")
    dead = repository.with_name("repository.repobuild") / ".staging" / "0123"
    (dead / "work").mkdir(parents=True)
    (dead / "alive").touch()
    build(repository, 2, "b")
    assert not dead.exists()


@pytest.mark.parametrize(
    "path", ["file", "file/below", "other.repobuild", "other.repobuild/m", "odd\udc80", "/"]
)
def test_paths_that_cannot_be_a_repository_are_refused(tmp_path, path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputInvalid) as caught:
        Workshop(tmp_path / path)
    assert caught.value.code == "repository-unusable"


def test_an_error_of_the_file_system_in_the_middle_undoes_the_step(tmp_path, tree, monkeypatch):
    repository = tmp_path / "repository"
    build(repository, 1, "a")
    before = tree(repository)
    original = Path.rename

    def full(self, target):
        if Path(target).name == "2":
            raise OSError(28, "No space left on device", str(target))
        return original(self, target)

    with Workshop(repository) as shop:
        stage(shop, 2, "b", delay=1, warmup="second row")
        monkeypatch.setattr(Path, "rename", full)
        with pytest.raises(EnvironmentLacking) as caught:
            step_in(shop, 2)
        monkeypatch.undo()
    assert caught.value.code == "disk-full"
    assert tree(repository) == before
    assert leftovers(repository) == []


def test_settling_without_a_journal_does_nothing(tmp_path):
    settle(tmp_path / "repository", tmp_path)
    with locked(tmp_path):
        pass
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_a_warm_up_file_that_was_removed_comes_back(tmp_path):
    repository = tmp_path / "repository"
    build(repository, 1, "a")
    [file] = (repository / "m" / "warmup").iterdir()
    file.unlink()
    assert build(repository, 2, "a") == commit_module.Outcome(1, changed=True, new_version=False)
    assert served(repository) == ("a", 0)


def test_a_warm_up_file_that_was_changed_is_put_right(tmp_path):
    repository = tmp_path / "repository"
    build(repository, 1, "a")
    [file] = (repository / "m" / "warmup").iterdir()
    file.write_text("something else")
    assert build(repository, 2, "a").changed
    assert file.read_text() == "first row"


def test_a_label_file_that_was_changed_is_put_right(tmp_path):
    repository = tmp_path / "repository"
    build(repository, 1, "first")
    (repository / "m" / label_name("first row")).write_text("other")
    assert build(repository, 1, "first").changed
    assert served(repository) == ("first", 0)


def test_label_files_of_others_are_left_alone(tmp_path):
    repository = tmp_path / "repository"
    build(repository, 1, "first")
    theirs = [
        repository / "m" / name for name in ("labels.txt", "y_labels-mine.txt", "y_labels-0123456789ab.txt")
    ]
    for file in theirs:
        file.write_text("by hand")
    build(repository, 2, "second", warmup="second row")
    assert [file.read_text() for file in theirs] == ["by hand"] * 3
    assert not (repository / "m" / label_name("first row")).exists()


def test_warm_up_files_of_others_are_left_alone(tmp_path):
    repository = tmp_path / "repository"
    build(repository, 1, "a")
    (repository / "m" / "warmup" / "by-hand").write_text("x")
    build(repository, 2, "b", warmup="second row")
    names = {p.name for p in (repository / "m" / "warmup").iterdir()}
    assert names == {"by-hand", warmup_name("second row")}


def test_records_bear_the_number_that_the_version_gets(tmp_path):
    repository = tmp_path / "repository"
    build(repository, 1, "a")
    build(repository, 1, "b")
    state = tmp_path / "repository.repobuild" / "m"
    assert json.loads((state / "2" / "manifest.json").read_text()) == {"version": 2}


def test_records_that_were_removed_are_written_again(tmp_path, tree):
    repository = tmp_path / "repository"
    build(repository, 1, "a")
    before = tree(tmp_path)
    shutil.rmtree(tmp_path / "repository.repobuild")
    assert not build(repository, 2, "a").changed
    assert tree(tmp_path) == before


def _come_and_go(path, count):
    for _ in range(count):
        with Workshop(path) as shop:
            recover(shop)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_builds_that_come_and_go_at_once_do_not_disturb_each_other(tmp_path):
    context = multiprocessing.get_context("fork")
    children = [
        context.Process(target=_come_and_go, args=(tmp_path / "deep" / "models", 150)) for _ in range(3)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert [p.name for p in tmp_path.rglob("*") if p.name != "deep"] == []
