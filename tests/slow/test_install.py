"""The wheel in fresh environments: what imports without extras, and what the command says there."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CONSTRAINTS = ROOT / "tests" / "constraints.txt"
ABSENT = ("torch", "sklearn", "skl2onnx", "joblib", "onnxruntime", "pandas")
IMPORT_ALL = """
import importlib, importlib.util, pkgutil, sys
assert not [n for n in sys.argv[1:] if importlib.util.find_spec(n)], "not a bare environment"
count = 0
for package in ("repobuild", "repobuild_serve", "repobuild_templates"):
    root = importlib.import_module(package)
    for info in pkgutil.walk_packages(root.__path__, package + "."):
        if not info.name.endswith("__main__"):
            importlib.import_module(info.name)
            count += 1
print(count)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT],
        check=True,
        timeout=300,
    )
    [file] = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """An interpreter in an environment with the wheel and nothing that an extra brings."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    python = folder / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS, wheel],
        check=True,
        timeout=600,
    )
    return python


@pytest.mark.slow
def test_the_wheel_holds_three_packages_and_the_templates(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.partition("/")[0] for n in names if ".dist-info" not in n} == {
        "repobuild", "repobuild_serve", "repobuild_templates",
    }  # fmt: skip
    assert "repobuild_templates/config.pbtxt.j2" in names
    assert "repobuild/py.typed" in names


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_module_imports_in_a_bare_environment(bare):
    done = subprocess.run([bare, "-c", IMPORT_ALL, *ABSENT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 60


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_command_works_there_and_names_what_is_missing(bare, risk_project, tmp_path):
    words = [bare, "-m", "repobuild"]
    assert subprocess.run([*words, "--help"], capture_output=True, timeout=60).returncode == 0
    done = subprocess.run(
        [*words, "convert", risk_project, "-r", tmp_path / "models", "--trust", "pickle"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 7, done.stderr
    assert "repobuild[sklearn]" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "models").exists()
