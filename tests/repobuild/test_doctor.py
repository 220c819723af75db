"""``repobuild doctor``: what this machine has and lacks, one line each."""

import importlib.metadata
import json
import sys
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from repobuild.doctor import machine, packages
from repobuild.doctor.interface import Finding
from repobuild.doctor.sandbox import judged, sandbox_finding
from repobuild.doctor.versions import Requirement, in_range, release_of


@pytest.mark.parametrize(
    ("version", "text", "inside"),
    [
        ("1.20.0", ">=1.20", True),
        ("1.20", ">=1.20.0", True),
        ("1.9", ">=1.20", False),
        ("6.33.6", "<7,>=5.29", True),
        ("7.35.1", "<7,>=5.29", False),
        ("3.11.7", ">=3.11,<3.14", True),
        ("2.0.0rc1", ">=2", True),
        ("2.1", "!=2.1", False),
        ("2.1", "==2.1.0", True),
        ("1.0", "", True),
    ],
)
def test_whether_a_version_lies_in_a_range(version, text, inside):
    assert in_range(version, text) == inside


def test_a_range_that_is_not_understood_is_said():
    with pytest.raises(ValueError, match="'~=2' is not understood"):
        in_range("2", "~=2")


def test_versions_are_compared_as_numbers():
    assert release_of("1.10") > release_of("1.9.9")


@pytest.mark.parametrize(
    ("text", "name", "wanted", "extra"),
    [
        ("click>=8.1", "click", ">=8.1", None),
        ("tritonclient[grpc,http]>=2.60", "tritonclient", ">=2.60", None),
        ("ruamel.yaml>=0.18.6", "ruamel-yaml", ">=0.18.6", None),
        ('skops>=0.11; extra == "sklearn"', "skops", ">=0.11", "sklearn"),
    ],
)
def test_requirements_are_read(text, name, wanted, extra):
    assert Requirement.parse(text) == Requirement(name, wanted, extra)


def test_every_requirement_of_this_project_is_understood():
    for text in importlib.metadata.requires("repobuild"):
        Requirement.parse(text).met_by("1.0")


def test_missing_and_outdated_packages(monkeypatch):
    have = {"there": "1.0", "old": "0.9", "onnxruntime": "1.19"}
    monkeypatch.setattr(packages, "installed", have.get)
    lines = [
        "there>=1", "old>=1", "gone>=1", 'needs>=1; extra == "sklearn"', 'dev>=1; extra == "dev"',
        'onnxruntime>=1.20; extra == "cpu"', 'onnxruntime-gpu>=1.20; extra == "gpu"',
    ]  # fmt: skip
    found = {f.name: (f.state, f.hint) for f in packages.package_findings(lines)}
    assert found == {
        "package: there": ("ok", ""),
        "package: old": ("fail", "pip install 'old>=1'"),
        "package: gone": ("fail", "pip install 'gone>=1'"),
        "package: needs": ("warn", "pip install 'repobuild[sklearn]'"),
        "package: onnxruntime": ("fail", "pip install 'onnxruntime>=1.20'"),
    }
    have.pop("onnxruntime")
    [*_, runtime] = packages.package_findings(lines)
    assert (runtime.state, runtime.detail) == ("fail", "neither onnxruntime nor onnxruntime-gpu is installed")


@pytest.mark.parametrize(
    ("have", "names"),
    [
        ({"onnxruntime": "1.32.0", "protobuf": "6.1", "skl2onnx": "1.20", "scikit-learn": "1.9"}, []),
        ({"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.32.0"}, ["pair: two runtimes"]),
        ({"protobuf": "7.35.1", "skl2onnx": "1.20"}, ["pair: protobuf, skl2onnx"]),
        ({"skl2onnx": "1.17.0", "scikit-learn": "1.6.1"}, ["pair: skl2onnx, scikit-learn"]),
        ({"skl2onnx": "1.18.0", "scikit-learn": "1.6.1"}, []),
        ({"skl2onnx": "1.19.1", "scikit-learn": "1.9.1"}, ["pair: skl2onnx, scikit-learn"]),
        ({"protobuf": "7.35.1"}, []),
    ],
)
def test_known_bad_pairs(have, names):
    assert [f.name for f in packages.pair_findings(have)] == names


def test_a_package_that_crashes_while_it_is_imported_is_told(tmp_path, monkeypatch):
    (tmp_path / "crashing.py").write_text("import os\nos.abort()\n")
    (tmp_path / "broken.py").write_text("raise ImportError('numpy ABI')\n")
    (tmp_path / "hanging.py").write_text("while True: pass\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = [
        packages.import_finding("x", [name], seconds, needed=True)
        for name, seconds in (("json", 60), ("broken", 60), ("hanging", 0.5))
    ]
    assert [f.state for f in found] == ["ok", "fail", "fail"]
    assert found[1].detail == "ImportError: numpy ABI"
    assert found[2].detail.startswith("not imported within")
    assert packages.import_finding("x", ["crashing"], 60, needed=False).state == "warn"


def test_plug_ins_that_do_not_load_are_warned_of(monkeypatch, tmp_path):
    (tmp_path / "raising.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    points = [
        EntryPoint("good", "json:loads", "repobuild.sources"),
        EntryPoint("bad", "no_such_module_here:X", "repobuild.compilers"),
        EntryPoint("worse", "raising:X", "repobuild.runners"),
    ]
    monkeypatch.setattr(
        "repobuild.plugins.entry_points", lambda group: [p for p in points if p.group == group]
    )
    assert [(f.name, f.state) for f in packages.plugin_findings()] == [
        ("plug-in: good", "ok"),
        ("plug-in: bad", "warn"),
        ("plug-in: worse", "warn"),
    ]


def test_without_metadata_of_the_project_nothing_is_known_of_ranges(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(packages, "requires", missing)
    monkeypatch.setattr(machine, "metadata", missing)
    assert [f.state for f in packages.package_findings()] == ["warn"]
    assert machine.python_finding().state == "warn"


def test_disks_that_are_full_or_closed(tmp_path, monkeypatch):
    for free, state in ((5 << 30, "ok"), (500 << 20, "warn"), (1 << 20, "fail")):
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert machine.disk_finding("disk: temporary", tmp_path).state == state
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    assert machine.disk_finding("disk: temporary", tmp_path).state == "fail"
    assert machine.disk_finding("disk: working", tmp_path).state == "warn"


def test_little_memory_and_few_files_are_warned_of(monkeypatch):
    import resource

    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=4 << 30, available=1 << 30))
    assert machine.memory_finding().state == "warn"
    for soft, state in ((65536, "ok"), (256, "warn"), (32, "fail")):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, 65536))
        assert machine.files_finding().state == state


def test_gpus_are_asked_of_nvml_then_of_nvidia_smi(monkeypatch, tmp_path):
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetName=lambda _: b"NVIDIA T4",
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert machine.gpu_finding() == Finding("gpu", "ok", "NVIDIA T4")

    def refuse():
        raise RuntimeError("Driver Not Loaded")

    nvml.nvmlInit = refuse
    assert machine.gpu_finding().state == "warn"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA L4, 550.1'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert machine.gpu_finding().detail == "NVIDIA L4, 550.1"
    tool.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.gpu_finding().state == "ok"


def test_what_the_sandbox_reaches_is_tried():
    assert sandbox_finding().detail.startswith("network ")
    good = {"network": "cut by network namespace", "writes": "held to the build's folders by Landlock"}
    assert judged(good) == Finding("sandbox", "ok", "; ".join(f"{k} {v}" for k, v in good.items()))
    assert judged({**good, "network": "not cut: EPERM"}).state == "warn"
    assert judged({**good, "writes": "anywhere: ENOSYS"}).state == "warn"


def test_the_command_passes_here_with_one_line_each(repobuild_cli):
    outcome = repobuild_cli("doctor")
    assert outcome.status == 0, outcome.out
    lines = outcome.out.splitlines()
    assert all(line.split()[0] in ("ok", "warn") for line in lines[:-1])
    assert lines[-1].startswith("PASSED ")
    assert any(line.startswith("ok    port ") for line in lines)


def test_the_command_fails_with_status_7_when_convert_would(repobuild_cli, monkeypatch):
    found = [Finding("a", "ok", "fine"), Finding("b", "fail", "gone", "fetch it"), Finding("c", "warn", "hm")]
    monkeypatch.setattr("repobuild.doctor.examine", lambda: iter(found))
    outcome = repobuild_cli("doctor", "--json")
    assert outcome.status == 7
    document = json.loads(outcome.out)
    assert [f["state"] for f in document["result"]["findings"]] == ["ok", "fail", "warn"]
    assert document["error"]["code"] == "environment-unfit"
    assert [e["key"] for e in document["error"]["evidence"]] == ["b"]
    assert "fail  b" in outcome.err
    assert "gone; fetch it" in outcome.err
