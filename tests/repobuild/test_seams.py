"""One contract for every registered name of a seam, and for the local executor and store."""

import inspect
import os
from concurrent.futures.process import BrokenProcessPool

import pytest

from repobuild.compilers.interface import Available, Compiler, Unavailable
from repobuild.errors import EnvironmentLacking
from repobuild.executor.interface import Job
from repobuild.executor.local import LocalExecutor
from repobuild.plugins import COMPILERS, RUNNERS, SOURCES, Registry
from repobuild.runners.interface import Runner
from repobuild.sources.interface import Source
from repobuild.store.interface import KeyTaken
from repobuild.store.local import LocalStore

SEAMS = [(SOURCES, Source), (COMPILERS, Compiler), (RUNNERS, Runner)]
NAMES = [(registry, name, seam) for registry, seam in SEAMS for name in registry.names()]


@pytest.mark.parametrize(("registry", "name", "seam"), NAMES, ids=[f"{r.group}-{n}" for r, n, _ in NAMES])
def test_every_registered_name_has_the_methods_of_its_seam(registry, name, seam):
    kind = registry.load(name)
    for method, wanted in inspect.getmembers(seam, inspect.isfunction):
        if method.startswith("_") and method not in ("__enter__", "__exit__"):
            continue
        have = inspect.signature(getattr(kind, method)).parameters
        assert list(have) == list(inspect.signature(wanted).parameters), method


@pytest.mark.parametrize("name", COMPILERS.names())
def test_every_compiler_says_whether_it_is_available(name):
    here = COMPILERS.load(name)().available()
    assert isinstance(here, Available | Unavailable)
    assert name in RUNNERS.names()


def test_aliases_lead_to_their_owner():
    assert SOURCES.find("sklearn") == "joblib"
    assert SOURCES.find("nothing") is None


def test_a_broken_plugin_is_named(monkeypatch):
    registry = Registry("repobuild.sources", {}, {})
    monkeypatch.setattr(Registry, "_plugins", lambda self: {"odd": "no_such_module:Thing"})
    assert registry.names() == ("odd",)
    with pytest.raises(EnvironmentLacking, match="plug-in 'odd'") as caught:
        registry.load("odd")
    assert caught.value.code == "plugin-broken"


def double(number):
    """A job."""
    return number * 2


def end(status):
    """A job that ends its process."""
    os._exit(status)


@pytest.fixture
def executor():
    pool = LocalExecutor(1)
    yield pool
    pool.shutdown()


def test_a_job_runs_in_another_process(executor):
    assert executor.submit(Job("os:getpid")).result() != os.getpid()
    assert executor.submit(Job("operator:index", {})).exception() is not None
    assert executor.submit(Job("json:dumps", {"obj": [1]})).result() == "[1]"


def test_a_job_whose_process_dies_says_so(executor):
    with pytest.raises(BrokenProcessPool):
        executor.submit(Job("os:abort")).result()


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "store")


def test_a_store_gives_back_what_was_put(store):
    store.put_if_absent("objects/ab/cd", b"data")
    store.put_if_absent("channels/main/1.json", b"{}")
    assert store.get("objects/ab/cd") == b"data"
    assert list(store.list("objects/")) == ["objects/ab/cd"]
    assert list(store.list("")) == ["channels/main/1.json", "objects/ab/cd"]


def test_a_key_is_written_once(store):
    store.put_if_absent("a", b"first")
    with pytest.raises(KeyTaken):
        store.put_if_absent("a", b"second")
    assert store.get("a") == b"first"


def test_a_missing_key_is_a_key_error(store):
    with pytest.raises(KeyError):
        store.get("nothing")
    assert list(store.list("")) == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "../a", "a/../b", ".hidden", "a//b", "a b", "a\0"])
def test_keys_that_could_leave_the_store_are_refused(store, key):
    with pytest.raises(ValueError, match="not a key"):
        store.put_if_absent(key, b"")
