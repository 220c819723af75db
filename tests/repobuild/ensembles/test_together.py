"""The step of an ensemble into the repository, killed before each of its operations on the file system."""

import json
import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from repobuild.emit import commit as commit_module
from repobuild.emit.commit import commit_together, recover
from repobuild.emit.config import read_config, sealed
from repobuild.emit.model import Emission
from repobuild.emit.together import Arrival
from repobuild.emit.versions import look
from repobuild.emit.workshop import Workshop
from repobuild.errors import EnvironmentLacking, VerificationFailed
from repobuild.triton import parse_config

STEP = """\
name: "{name}"
backend: "python"
version_policy {{ specific {{ versions: {version} }} }}
instance_group [ {{ count: {count} kind: KIND_CPU }} ]
"""
WHOLE = """\
name: "whole"
platform: "ensemble"
ensemble_scheduling {{
  step {{ model_name: "one" model_version: {one} }}
  step {{ model_name: "two" model_version: {two} }}
}}
"""
OPERATIONS = [
    (Path, "rename"),
    (Path, "replace"),
    (Path, "unlink"),
    (Path, "mkdir"),
    (Path, "rmdir"),
    (os, "fsync"),
    (shutil, "copyfile"),
]


def arrival(shop, model, version, content, text):
    """Stage a model whose version folder holds one file."""
    folder = shop.models / model
    (folder / str(version)).mkdir(parents=True)
    (folder / str(version) / "content.txt").write_text(content)
    (folder / "config.pbtxt").write_text(text)
    (shop.meta / model).mkdir()
    (shop.meta / model / "manifest.json").write_text(json.dumps({"ensemble": "whole", "content": content}))
    existing = look(shop.repository, model)
    new = existing is None or version not in existing.versions
    config = parse_config(text, "config.pbtxt")
    return Arrival(model, Emission(folder, version, None, config, text, False, (), existing, ()), new)


def build(repository, one, two, count=1):
    """Build steps of some versions, whose content tells the version, and an ensemble that names them."""
    with Workshop(repository) as shop:
        recover(shop)
        steps = [
            arrival(shop, name, v, f"{name} {v}", sealed(STEP.format(name=name, version=v, count=count)))
            for name, v in (("one", one), ("two", two))
        ]
        text = sealed(WHOLE.format(one=one, two=two))
        whole = arrival(shop, "whole", max(one, two), f"{one} {two}", text)
        arrivals = [
            a for a in (*steps, whole) if a.new_version or a.emission.existing.text != a.emission.config_text
        ]
        commit_together(shop, arrivals, (*steps, whole))


def served(repository):
    """What the ensemble names; each version that it names is there and is served by its model."""
    if not (repository / "whole").exists():
        return None
    named = {}
    for step in read_config(repository / "whole")[1].ensemble_scheduling.step:
        home = repository / step.model_name
        policy = read_config(home)[1].version_policy.specific.versions
        assert step.model_version in policy
        for version in policy:
            assert (home / str(version) / "content.txt").read_text() == f"{step.model_name} {version}"
        named[step.model_name] = step.model_version
    newest = max(int(p.name) for p in (repository / "whole").iterdir() if p.name.isdigit())
    assert (repository / "whole" / str(newest)).is_dir()
    return named


def tree(repository):
    """Every file of a repository and its records, with its content."""
    state = repository.with_name(repository.name + ".repobuild")
    return {
        p.relative_to(repository.parent).as_posix(): p.read_text()
        for folder in (repository, state)
        for p in folder.rglob("*")
        if p.is_file() and p.name != ".lock"
    }


def leftovers(repository):
    state = repository.with_name(repository.name + ".repobuild")
    return [p.name for p in (*state.glob(".journal*"), *state.glob(".staging/*"))]


def _until(repository, stop, arguments, finished):
    seen = 0
    armed = False

    def counted(original):
        def call(*args, **kwargs):
            nonlocal seen
            if armed:
                seen += 1
                if seen == stop:
                    os._exit(9)
            return original(*args, **kwargs)

        return call

    for owner, name in OPERATIONS:
        setattr(owner, name, counted(getattr(owner, name)))
    original = commit_module.together.prepare

    def prepare(*args):
        nonlocal armed
        armed = True
        return original(*args)

    commit_module.together.prepare = prepare
    build(repository, *arguments)
    finished.value = seen


def killed(repository, stop, arguments):
    """Build, killed before an operation; how many operations there were, if it was not reached."""
    context = multiprocessing.get_context("fork")
    finished = context.Value("i", 0)
    child = context.Process(target=_until, args=(repository, stop, arguments, finished))
    child.start()
    child.join()
    assert child.exitcode in (0, 9)
    return finished.value if child.exitcode == 0 else None


CASES = {
    "new": (None, (1, 1)),
    "one step": ((1, 1), (1, 2)),
    "both steps": ((1, 1), (2, 2)),
    "configuration": ((1, 1), (1, 1, 2)),
    "both and configuration": ((1, 1), (2, 2, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_after_a_kill_at_any_moment_the_old_or_the_new_ensemble_serves(tmp_path, name):
    before, after = CASES[name]
    start = tmp_path / "start"
    (start / "models").parent.mkdir()
    if before:
        build(start / "models", *before)
    old = served(start / "models")
    new = {"one": after[0], "two": after[1]}
    done = tmp_path / "done"
    shutil.copytree(start, done)
    build(done / "models", *after)
    whole, untouched = tree(done / "models"), tree(start / "models")
    stop, reached = 0, None
    while reached is None:
        stop += 1
        here = tmp_path / f"at{stop}"
        shutil.copytree(start, here)
        repository = here / "models"
        reached = killed(repository, stop, after)
        assert served(repository) in (old, new), stop
        with Workshop(repository) as shop:
            recover(shop)
        assert leftovers(repository) == []
        assert tree(repository) in (untouched, whole), stop
        build(repository, *after)
        assert tree(repository) == whole
        shutil.rmtree(here)
    assert stop > 10


def test_an_error_of_the_file_system_leaves_it_as_it_was(tmp_path, monkeypatch):
    repository = tmp_path / "models"
    build(repository, 1, 1)
    before = tree(repository)
    original = Path.replace

    def full(self, target):
        if Path(target) == repository / "whole/config.pbtxt":
            raise OSError(28, "No space left on device", str(target))
        return original(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(EnvironmentLacking):
        build(repository, 2, 2)
    monkeypatch.undo()
    assert tree(repository) == before
    assert leftovers(repository) == []


def test_a_model_that_changed_meanwhile_stops_it(tmp_path):
    repository = tmp_path / "models"
    build(repository, 1, 1)
    with Workshop(repository) as shop:
        text = sealed(WHOLE.format(one=1, two=1))
        late = arrival(shop, "whole", 2, "1 1", text)
        build(repository, 2, 2)
        with pytest.raises(VerificationFailed) as caught:
            commit_together(shop, [late], [late])
    assert caught.value.code == "repository-changed"
    assert served(repository) == {"one": 2, "two": 2}


def test_records_that_somebody_removed_come_back(tmp_path):
    repository = tmp_path / "models"
    build(repository, 1, 1)
    before = tree(repository)
    (tmp_path / "models.repobuild/one/1/manifest.json").unlink()
    build(repository, 1, 1)
    assert tree(repository) == before
