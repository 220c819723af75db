"""How models come and go that are made of others: order, members, what goes with what."""

from __future__ import annotations

import asyncio
import tempfile

import pytest

from repobuild_serve.core.internal import InternalCalls
from repobuild_serve.core.readiness import READY
from repobuild_serve.core.router import Router
from repobuild_serve.core.services import Services
from repobuild_serve.errors import LoadError, RequestError
from repobuild_serve.lifecycle import Control, ControlOptions, Mode, Models, loading
from repobuild_serve.lifecycle.graph import dependents, leaving, levels
from repobuild_serve.messages import model_config_class
from repobuild_serve.profile import CURRENT
from repobuild_serve.repository import ModelFolder

EXPLICIT = Mode.EXPLICIT


class FakeRunner:
    """Serves nothing; says when it is closed."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def start(self, loop, sink):
        self.log.append(f"start {self.name}")

    def submit(self, ticket):
        raise AssertionError

    def pending(self):
        return 0

    def busy(self):
        return False

    def ready(self):
        return True

    def readiness(self):
        return READY

    def close(self):
        self.log.append(f"close {self.name}")

    def gone(self):
        return True


def config(name, *members):
    message = model_config_class()()
    message.name = name
    message.platform, message.backend = ("ensemble", "") if members else ("", "python")
    for item in (message.input.add(), message.output.add()):
        item.data_type = 11
        item.dims.append(1)
    message.input[0].name, message.output[0].name = "IN", "OUT"
    tensors = ["IN", *(f"T{number}" for number in range(1, len(members))), "OUT"]
    for number, member in enumerate(members):
        step = message.ensemble_scheduling.step.add()
        step.model_name, step.model_version = member, -1
        step.input_map["IN"] = tensors[number]
        step.output_map["OUT"] = tensors[number + 1]
    return message


@pytest.fixture
def world(repository, monkeypatch):
    """A repository whose models need no files, and a place that says what happened to them."""

    class World:
        def __init__(self):
            self.log, self.configs, self.broken, self.count = [], {}, set(), 0

        def put(self, name, *members):
            self.configs[name] = config(name, *members)
            (repository.path / name / "1").mkdir(parents=True, exist_ok=True)
            self.touch(name)

        def touch(self, name):
            self.count += 1
            (repository.path / name / "1" / "note").write_text(str(self.count) * self.count)

    world = World()

    def read(path, *, name, **_):
        return ModelFolder(name, path, world.configs[name], None, (1,))

    def runner(settings, *_):
        if settings.name in world.broken:
            raise LoadError("it is broken")
        return FakeRunner(settings.name, world.log)

    monkeypatch.setattr(loading, "read_model", read)
    monkeypatch.setattr(loading, "runner_for", runner)

    def run(scenario, **options):
        async def main():
            loop, router = asyncio.get_running_loop(), Router()
            models = Models()
            services = Services(loop, InternalCalls(loop, router), models, CURRENT, {})
            control = Control(
                ControlOptions((repository.path,), **{"mode": EXPLICIT, **options}), models, services, router
            )
            try:
                await scenario(control, models)
            finally:
                await control.end()

        asyncio.run(main())

    world.run = run
    return world


def serving(models):
    return sorted({version.settings.name for version in models.ready_versions()})


async def settled(control):
    """Wait for what the loading threads still have to do."""
    await control._loaders.idle()


async def refused(call):
    with pytest.raises(RequestError) as caught:
        await call
    return caught.value.text


def test_levels():
    configs = {"a": config("a"), "e": config("e", "a"), "f": config("f", "e", "a"), "g": config("g", "g")}
    assert levels(configs) == [["a"], ["e"], ["f"], ["g"]]
    assert dependents(configs, {"a"}) == {"e", "f"}
    assert dependents(configs, {"f"}) == set()
    assert levels({"x": config("x", "y"), "y": config("y", "x")}) == [["x", "y"]]


def test_what_goes_with_a_model():
    configs = {"a": config("a"), "b": config("b"), "e": config("e", "a", "b"), "f": config("f", "b")}
    assert leaving(configs, "e", asked=()) == {"e", "a"}
    assert leaving(configs, "e", asked={"a"}) == {"e"}
    assert leaving(configs, "a", asked=()) == {"a"}


def test_an_ensemble_brings_its_members_up_first(world):
    for name, members in {"z": (), "e": ("z",), "a": ("e",)}.items():
        world.put(name, *members)

    async def scenario(control, models):
        await control.load("a", {})
        assert world.log == ["start z", "start e", "start a"]
        await control.load("a", {})
        assert len(world.log) == 3
        assert serving(models) == ["a", "e", "z"]

    world.run(scenario)


def test_the_start_brings_all_up_in_order(world):
    for name, members in {"z": (), "e": ("z",), "a": ("e",)}.items():
        world.put(name, *members)

    async def scenario(control, models):
        assert await control.load_startup() == []
        assert world.log == ["start z", "start e", "start a"]

    world.run(scenario, mode=Mode.NONE)


def test_a_changed_member_brings_its_ensembles_along(world):
    world.put("z")
    world.put("e", "z")

    async def scenario(control, models):
        await control.load("e", {})
        before = models.find("e", "")
        world.touch("z")
        await control.load("z", {})
        await models.gone()
        assert world.log == ["start z", "start e", "start z", "close z", "start e", "close e"]
        assert models.find("e", "") is not before

    world.run(scenario)


FILES = {"config": "{}", "file:1/model.py": b""}


def test_an_ensemble_of_a_member_whose_files_came_with_a_request(world):
    world.configs["z"] = config("z")
    world.put("e", "z")

    async def scenario(control, models):
        await control.load("z", FILES)
        member = models.find("z", "")
        await control.load("e", {})
        first = models.find("e", "")
        await control.load("e", {})
        assert models.find("e", "") is first
        world.touch("e")
        await control.load("e", {})
        assert models.find("e", "") is not first
        # Of the same name on disk is another model, which nobody asked for yet.
        world.put("z")
        world.touch("e")
        await control.load("e", {})
        assert models.find("z", "") is member
        await control.load("z", {})
        assert models.find("z", "") is not member
        await control.unload("z")
        await models.gone()
        await control.load("e", {})
        assert serving(models) == ["e", "z"]

    world.run(scenario)


def test_a_member_whose_files_came_with_a_request_and_that_is_gone(world):
    world.configs["z"] = config("z")
    world.put("e", "z")

    async def scenario(control, models):
        await control.load("z", FILES)
        await control.load("e", {})
        await control.unload("z")
        await models.gone()
        assert "failed to load" in await refused(control.load("e", {}))
        assert serving(models) == []
        await control.load("z", FILES)
        assert serving(models) == ["e", "z"]

    world.run(scenario)


def test_the_files_of_an_ensemble_stay_as_long_as_it_may_come_back(world, tmp_path, monkeypatch):
    """Whatever happens to its members meanwhile."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    world.put("z")
    world.configs["e"] = config("e", "z")

    async def kept(control, models):
        await models.gone()
        await settled(control)
        return [path.name for path in folder.glob("*/1/*")]

    async def scenario(control, models):
        await control.load("z", {})
        await control.load("e", FILES)
        for _ in range(3):
            world.touch("z")
            await control.load("z", {})
            assert serving(models) == ["e", "z"]
            assert await kept(control, models) == ["model.py"]
        await control.unload("z")
        assert await kept(control, models) == ["model.py"]
        await control.load("z", {})
        assert serving(models) == ["e", "z"]
        assert await kept(control, models) == ["model.py"]
        await control.load("e", FILES)
        assert await kept(control, models) == ["model.py"]
        await control.unload("e")
        assert await kept(control, models) == []

    world.run(scenario)
    assert not list(folder.iterdir())


def test_the_files_of_an_ensemble_that_fails_are_removed_at_the_end(world, tmp_path, monkeypatch):
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    world.put("z")
    world.broken.add("z")
    world.configs["e"] = config("e", "z")

    async def scenario(control, models):
        for _ in range(3):
            assert "load failed" in await refused(control.load("e", FILES))
            await settled(control)
            assert len(list(folder.iterdir())) == 1

    world.run(scenario)
    assert not list(folder.iterdir())


def test_a_member_that_is_missing(world):
    world.put("e", "nope")

    async def scenario(control, models):
        expected = (
            "load failed for model 'e': ensemble e contains models that are not available or ambiguous: "
            "nope\n"
        )
        assert await refused(control.load("e", {})) == expected
        assert await refused(control.load("e", {})) == expected
        world.put("nope")
        await control.load("nope", {})
        assert serving(models) == ["e", "nope"]

    world.run(scenario)


def test_a_member_that_fails(world):
    world.put("z")
    world.put("e", "z")
    world.broken.add("z")

    async def scenario(control, models):
        text = await refused(control.load("e", {}))
        assert text == (
            "load failed for model 'e': ensemble 'e' depends on 'z' which has no loaded version. Model 'z' "
            "loading failed with error: version 1 is at UNAVAILABLE state: Invalid argument: it is broken;\n"
        )
        assert serving(models) == []
        world.broken.clear()
        await control.load("e", {})
        assert serving(models) == ["e", "z"]

    world.run(scenario)


def test_an_ensemble_goes_and_comes_with_its_member(world):
    world.put("z")
    world.put("e", "z")

    async def scenario(control, models):
        await control.load("e", {})
        await control.unload("z")
        await models.gone()
        assert serving(models) == []
        assert models.readiness() == READY
        await control.load("z", {})
        assert serving(models) == ["e", "z"]

    world.run(scenario)


@pytest.mark.parametrize(("asked", "left"), [(False, []), (True, ["z"])])
def test_unloading_with_dependents(world, asked, left):
    world.put("z")
    world.put("e", "z")

    async def scenario(control, models):
        if asked:
            await control.load("z", {})
        await control.load("e", {})
        await control.unload("e", dependents=True)
        assert serving(models) == left

    world.run(scenario)


def test_unloading_without_dependents_leaves_the_members(world):
    world.put("z")
    world.put("e", "z")

    async def scenario(control, models):
        await control.load("e", {})
        await control.unload("e")
        assert serving(models) == ["z"]

    world.run(scenario)


def test_ensembles_of_themselves(world):
    world.put("x", "y")
    world.put("y", "x")

    async def scenario(control, models):
        assert "circular dependency between ensembles" in await refused(control.load("x", {}))
        assert serving(models) == []

    world.run(scenario)


def test_operations_on_related_models_at_once(world):
    world.put("z")
    for name in ("d", "e", "f"):
        world.put(name, "z")

    async def scenario(control, models):
        for _ in range(10):
            world.touch("z")
            await asyncio.gather(
                *(control.load(name, {}) for name in ("d", "z", "e", "f")), control.unload("z")
            )
        await control.load("z", {})
        assert serving(models) == ["d", "e", "f", "z"]
        await models.gone()
        starts, closes = (sum(line.startswith(word) for line in world.log) for word in ("start", "close"))
        assert starts - closes == 4

    world.run(scenario)
