"""What the states of models mean for readiness, in this process."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import weakref

import pytest

from repobuild_serve.core.internal import InternalCalls
from repobuild_serve.core.readiness import DOWN, READY
from repobuild_serve.core.router import Router
from repobuild_serve.core.services import Services
from repobuild_serve.errors import RequestError
from repobuild_serve.http.budget import Budget
from repobuild_serve.http.front import FrontOptions
from repobuild_serve.http.generate import GenerateService
from repobuild_serve.http.infer import InferService
from repobuild_serve.http.limits import Limits
from repobuild_serve.http.parser import Request
from repobuild_serve.http.repository_routes import RepositoryRoutes
from repobuild_serve.http.routes import Routes
from repobuild_serve.lifecycle import Control, ControlOptions, Mode, Models
from repobuild_serve.lifecycle.fingerprint import fingerprint
from repobuild_serve.lifecycle.instances import Change
from repobuild_serve.lifecycle.overrides import decode_base64, overrides_from
from repobuild_serve.lifecycle.pool import Pool
from repobuild_serve.lifecycle.states import UNLOADED, Record, State
from repobuild_serve.profile import CURRENT, PROFILES

LEGACY = PROFILES["24.10"]


class FakeVersion:
    """A version that is there, but may have lost its instances."""

    def __init__(self, *, lost=False):
        self.lost = lost

    def readiness(self):
        return DOWN if self.lost else READY


def models_with(record):
    models = Models()
    models.track("m").records[1] = record
    return models


def ask(models, profile, path):
    limits, router = Limits(), Router()
    budget = Budget(limits.held_size)
    infer = InferService(limits, budget, router, profile)
    generate = GenerateService(limits, budget, router, profile)
    routes = Routes(models, infer, generate, limits, "triton", profile, FrontOptions(), strict_readiness=True)
    answer = routes.respond(Request(method=b"GET", target=path), None)
    return int(answer[9:12]), answer.partition(b"\r\n\r\n")[2].decode()


NOT_READY = '{"error":"Model version not ready"}'
CASES = {
    "ready": (Record(State.READY, version=FakeVersion()), (200, ""), (200, ""), 200, 200),
    "lost": (Record(State.READY, version=FakeVersion(lost=True)), (400, NOT_READY), (200, ""), 400, 200),
    "loading": (Record(State.LOADING), (503, None), (400, NOT_READY), 400, 400),
    "unloading": (Record(State.UNLOADING), (503, None), (400, NOT_READY), 400, 400),
    "unloaded": (Record(State.UNAVAILABLE, UNLOADED), (503, None), (400, NOT_READY), 200, 200),
    "failed": (Record(State.UNAVAILABLE, "Internal: x"), (503, None), (400, NOT_READY), 400, 400),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("profile", [CURRENT, LEGACY], ids=lambda profile: profile.name)
def test_readiness(case, profile):
    record, current, legacy, server, legacy_server = CASES[case]
    models = models_with(record)
    status, text = ask(models, profile, b"/v2/models/m/versions/1/ready")
    expected, expected_text = legacy if profile.legacy else current
    assert status == expected
    assert text == (expected_text if expected_text is not None else text)
    assert ask(models, profile, b"/v2/health/ready")[0] == (legacy_server if profile.legacy else server)


def test_ready_of_an_unknown_model():
    assert ask(Models(), LEGACY, b"/v2/models/m/ready") == (400, NOT_READY)
    status, text = ask(Models(), CURRENT, b"/v2/models/m/ready")
    assert (status, text) == (404, '{"error":"Request for unknown model: \'m\' is not found"}')


def unload_route(profile):
    (route,) = [
        route for route in RepositoryRoutes(Models(), profile).routes() if b"/unload" in route.path.pattern
    ]
    return route


def test_unload_bodies_of_the_old_release():
    match = re.match(rb"(?P<repository>x)?(?P<model>m)", b"m")
    for body in (b"{", b'{"parameters":{"unload_dependents":1}}'):
        request = Request(method=b"POST", body=body)
        unload_route(LEGACY).handler(request, match, None).close()
        with pytest.raises(RequestError):
            unload_route(CURRENT).handler(request, match, None)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("Zm9v", b"foo"),
        ("Zm9vYg", b"foob"),
        ("Zm9vYg==", b"foob"),
        ("Z m\n9=v\u00e9", b"foo"),
        ("Zm9vY", b"foo"),
        ("=", b""),
        ("", b""),
    ],
)
def test_lenient_base64(text, data):
    assert decode_base64(text) == data


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"foo": "x"}, "unrecognized load parameter 'foo'."),
        ({"config": b"x"}, "invalid value type for load parameter 'config', expected string_param."),
        ({"file:a": "x"}, "invalid value type for load parameter 'file:a', expected bytes_param."),
    ],
)
def test_parameters_of_the_wrong_kind(parameters, text):
    with pytest.raises(RequestError) as caught:
        overrides_from(parameters)
    assert caught.value.text == text


def test_what_a_fingerprint_sees(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "config.pbtxt").write_text("a")
    (tmp_path / "1" / "model").write_text("a")
    (tmp_path / "labels").write_text("a")
    first = fingerprint(tmp_path)
    cache = tmp_path / "1" / "__pycache__"
    cache.mkdir()
    (cache / "x.pyc").write_text("")
    assert fingerprint(tmp_path) == first
    (tmp_path / "2").mkdir()
    second = fingerprint(tmp_path)
    assert second != first
    assert second.of_version(1) == first.of_version(1)
    os.utime(tmp_path / "config.pbtxt", ns=(1, 1))
    third = fingerprint(tmp_path)
    assert third != second
    assert third.of_version(1) == first.of_version(1)
    os.utime(tmp_path / "1" / "model", ns=(1, 1))
    assert fingerprint(tmp_path).of_version(1) != first.of_version(1)
    fourth = fingerprint(tmp_path)
    (tmp_path / "labels").unlink()
    assert fingerprint(tmp_path).of_version(1) != fourth.of_version(1)
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    assert fingerprint(tmp_path) != fourth
    (tmp_path / "loop").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"nested too deeply|symbolic links"):
        fingerprint(tmp_path)


class Named:
    """A worker as far as choosing goes."""

    def __init__(self, name):
        self.name = name


@pytest.mark.parametrize(
    ("old", "new", "removed", "missing", "names"),
    [
        ({"a": b"1"}, {"a": b"1"}, [], [], {"a"}),
        ({"a": b"1"}, {"a": b"1", "b": b"1"}, [], ["b"], {"a", "b"}),
        ({"a": b"1", "b": b"1"}, {"a": b"1"}, ["b"], [], {"a"}),
        ({"a": b"1"}, {"a": b"2"}, ["a"], ["a"], {"a"}),
        ({"a": b"1"}, {"x": b"1"}, [], [], {"a"}),
        ({"a": b"1", "b": b"1"}, {"x": b"1", "y": b"2"}, ["b"], ["y"], {"a", "y"}),
        ({"a": b"1", "b": b"2"}, {"a": b"2", "b": b"1"}, ["a", "b"], ["a", "b"], {"a", "b"}),
    ],
)
def test_which_instances_stay(old, new, removed, missing, names):
    change = Change.between([Named(name) for name in old], old, new, None)
    assert [worker.name for worker in change.removed] == removed
    assert sorted(change.missing) == missing
    assert set(change.signatures) == names


def test_a_pool_throws_away_what_nobody_waits_for():
    async def main():
        pool = Pool(asyncio.get_running_loop(), 1, "test")
        begun, go_on = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        thrown = []

        def slow():
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
            return "result"

        running = pool.run(slow, thrown.append)
        never = pool.run(lambda: thrown.append("never"))
        await begun.wait()
        running.cancel()
        never.cancel()
        go_on.set()
        await pool.idle()
        assert thrown == ["result"]
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 // 0)
        pool.close()

    asyncio.run(main())


def test_a_version_that_is_gone_is_freed_without_the_collector(repository):
    repository.identity("m", extra="dynamic_batching { max_queue_delay_microseconds: 100 }")

    async def main():
        loop, router, models, limits = asyncio.get_running_loop(), Router(), Models(), Limits()
        infer = InferService(limits, Budget(limits.held_size), router, CURRENT)
        models.watch(infer.forget)
        services = Services(loop, InternalCalls(loop, router), models, CURRENT, {})
        control = Control(ControlOptions((repository.path,), Mode.EXPLICIT), models, services, router)
        seen = []
        for _ in range(2):
            await control.load("m", {})
            version = models.find("m", "")
            seen += [weakref.ref(version), weakref.ref(version.runner), weakref.ref(infer.endpoint(version))]
            del version
            gc.collect()
            gc.disable()
            await control.unload("m")
            await models.gone()
            # The thread of the pool that loaded it, and the loop, hold their last call for a moment.
            for _ in range(1000):
                if not any(reference() is not None for reference in seen):
                    break
                await asyncio.sleep(0.01)
            assert [reference() for reference in seen] == [None] * len(seen)
            gc.enable()
        await control.end()

    try:
        asyncio.run(main())
    finally:
        gc.enable()
