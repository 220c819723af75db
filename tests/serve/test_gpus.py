"""GPUs: what the driver tells, where instances are put, and which file they load."""

from __future__ import annotations

import json
import logging

import pytest

from repobuild_serve import gpus
from repobuild_serve.backends.model_backend import Threaded
from repobuild_serve.config.settings import enum_name
from repobuild_serve.errors import LoadError
from repobuild_serve.gpus import Gpu, visible_gpus
from repobuild_serve.lifecycle.loading import Reading, read_source, resolved_settings, runner_for
from repobuild_serve.lifecycle.overrides import Overrides
from repobuild_serve.repository import read_model

AMPERE, HOPPER = Gpu(0, "8.6"), Gpu(1, "9.0")
IO = (
    'backend: "mine"\nmax_batch_size: 8\n'
    'input [{ name: "IN" data_type: TYPE_FP32 dims: [ 2 ] }]\n'
    'output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }]\n'
)
FILES = 'cc_model_filenames [{ key: "8.6" value: "ampere.bin" }, { key: "7.5" value: "turing.bin" }]\n'


class Driver:
    """The functions of the CUDA driver that are used, for devices of these capabilities."""

    def __init__(self, *capabilities, fails=None):
        self._capabilities = capabilities
        self._fails = fails or {}

    def cuInit(self, flags):  # noqa: N802
        assert flags == 0
        return self._fails.get("cuInit", 0)

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = len(self._capabilities)
        return self._fails.get("cuDeviceGetCount", 0)

    def cuDeviceGet(self, device, number):  # noqa: N802
        device._obj.value = number + 70
        return self._fails.get("cuDeviceGet", 0)

    def cuDeviceGetAttribute(self, value, which, device):  # noqa: N802
        value._obj.value = self._capabilities[device.value - 70][{75: 0, 76: 1}[which]]
        return self._fails.get("cuDeviceGetAttribute", 0)


@pytest.fixture
def driver(monkeypatch):
    return lambda made: monkeypatch.setattr(gpus, "load_driver", lambda: made)


def test_without_a_driver_there_are_none(monkeypatch):
    monkeypatch.setattr(gpus, "_DRIVER", "libnowhere.so.1")
    assert visible_gpus() == ()


def test_what_the_driver_tells(driver):
    driver(Driver((8, 6), (9, 0)))
    assert visible_gpus() == (AMPERE, HOPPER)


def test_a_driver_without_a_device(driver, caplog):
    driver(Driver(fails={"cuInit": 100}))
    assert visible_gpus() == ()
    assert not caplog.text


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute"])
def test_a_driver_that_fails_is_told(driver, caplog, function):
    driver(Driver((8, 6), fails={function: 999}))
    assert visible_gpus() == ()
    assert f"no GPU is used: {function} of the CUDA driver failed with status 999" in caplog.text


def test_small_gpus_do_not_count(driver, caplog):
    driver(Driver((5, 2), (8, 6), (10, 0)))
    assert [gpu.number for gpu in visible_gpus()] == [1, 2]
    assert "GPU 0 is not used: compute capability 5.2, less than 6" in caplog.text
    assert [gpu.number for gpu in visible_gpus(9.0)] == [2]


class Mine:
    """A backend for GPUs that notes which file its instances load."""

    platform = ""
    default_filename = "model.bin"
    default_count = 1

    def __init__(self):
        self.opened = []

    def uses_gpus(self):
        return True

    def complete(self, config, path):
        pass

    def open(self, settings, path, instance_name):
        self.opened.append((instance_name, path.name))
        return self

    def close(self):
        pass


@pytest.fixture
def mine(monkeypatch):
    made = Mine()
    monkeypatch.setattr("repobuild_serve.repository.backend_named", lambda name: Threaded(made))
    return made


@pytest.fixture
def read(repository, mine):
    def one(extra, gpus=(AMPERE, HOPPER)):
        folder = repository.config("m", IO + extra)
        version = folder / "1" if folder.is_dir() else folder.parent / "1"
        version.mkdir()
        for name in ("model.bin", "ampere.bin", "turing.bin"):
            (version / name).write_bytes(b"")
        return read_model(repository.path / "m", auto_complete=True, gpus=gpus)

    return one


@pytest.fixture
def load(services):
    def one(folder):
        from repobuild_serve.core.statistics import Statistics
        from repobuild_serve.lifecycle import Models
        from repobuild_serve.wire.plan import InferPlan

        settings = resolved_settings(folder)
        plan = InferPlan(settings, 1, [()])
        runner = runner_for(settings, folder, plan, Statistics(), services(Models()))
        runner.close()
        return settings

    return one


def groups(folder):
    return [
        (group.name, enum_name(group, "kind"), group.count, list(group.gpus))
        for group in folder.config.instance_group
    ]


def test_instances_without_a_kind_go_to_the_gpus(read):
    assert groups(read("")) == [("m", "KIND_GPU", 1, [0, 1])]


def test_without_gpus_they_go_to_the_processor(read):
    assert groups(read("", gpus=())) == [("m", "KIND_CPU", 1, [])]


def test_a_backend_without_use_for_gpus_runs_on_the_processor(read, mine, monkeypatch):
    monkeypatch.setattr(mine, "uses_gpus", lambda: False)
    folder = read("")
    assert groups(folder) == [("m", "KIND_CPU", 1, [])]
    assert folder.gpus == ()


def test_a_gpu_that_is_not_there_is_refused(read):
    folder = read("instance_group { kind: KIND_GPU gpus: [ 3 ] }\n")
    with pytest.raises(LoadError, match=r"specifies invalid or unsupported gpu id 3\. .* are: 0, 1"):
        resolved_settings(folder)


@pytest.mark.parametrize(
    ("options", "told"), [((), "6.000000"), (("7.5",), "7.500000")], ids=["default", "given"]
)
def test_the_refusal_of_a_gpu_names_what_the_command_line_asks_for(launch, repository, options, told):
    repository.echo("m", extra="instance_group { kind: KIND_GPU gpus: [ 3 ] }")
    server = launch(repository.path, *(f"--min-supported-compute-capability={value}" for value in options))
    assert server.process.wait(60) == 3
    assert f"minimum required CUDA compute compatibility of {told} are: " in server.log.read_text()


def test_a_model_that_comes_with_its_files_is_told_so_too():
    reading = Reading((), min_compute_capability=7.5)
    files = {"1/model.onnx": b""}
    config = {
        "backend": "onnxruntime",
        "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}],
        "instance_group": [{"kind": "KIND_GPU", "gpus": [3]}],
    }
    source = read_source("m", Overrides(json.dumps(config), files), reading, None)
    assert source is not None
    try:
        with pytest.raises(LoadError, match=r"compatibility of 7\.500000 are: "):
            resolved_settings(source.folder)
    finally:
        source.discard()


def test_the_file_of_the_compute_capability_is_loaded(read, load, mine, caplog):
    with caplog.at_level(logging.WARNING):
        load(read(FILES + "instance_group [{ kind: KIND_GPU gpus: [ 0 ] }, { kind: KIND_CPU count: 1 }]\n"))
    assert mine.opened == [("m_0_0", "ampere.bin"), ("m_1_0", "model.bin")]
    assert not caplog.text


def test_a_capability_without_a_file_gets_the_default_and_it_is_told(read, load, mine, caplog):
    load(read(FILES + "instance_group { kind: KIND_GPU gpus: [ 1 ] }\n"))
    assert mine.opened == [("m_0_0", "model.bin")]
    assert "no file for compute capability 9.0 of GPU 1" in caplog.text


def test_a_capability_whose_file_is_missing(read, load, repository):
    folder = read(FILES + "instance_group { kind: KIND_GPU gpus: [ 0 ] }\n")
    (repository.path / "m" / "1" / "ampere.bin").unlink()
    with pytest.raises(LoadError, match=r"ampere\.bin' does not exist"):
        load(folder)


def test_a_group_has_its_count_of_instances_on_every_gpu(read, load, mine):
    settings = load(read(FILES + "instance_group { count: 2 }\n"))
    assert len(settings.instance_names) == 4
    assert sorted(name for _, name in mine.opened) == ["ampere.bin", "ampere.bin", "model.bin", "model.bin"]
