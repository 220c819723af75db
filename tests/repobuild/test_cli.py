"""The command line: fast help, exit codes, and modules that import without the heavy packages."""

import json
import os
import pkgutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import repobuild
import repobuild_serve
import repobuild_templates
from repobuild.cli import COMMANDS

HEAVY = (
    "torch", "tensorrt", "sklearn", "skl2onnx", "joblib", "onnx", "onnxruntime", "numpy", "pandas",
    "pydantic", "rich", "jsonschema",
    "grpc", "tritonclient", "google.protobuf", "jinja2", "ruamel", "uvloop", "gevent", "aiohttp",
)  # fmt: skip
MODULES = sorted(
    info.name
    for package in (repobuild, repobuild_serve, repobuild_templates)
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
)


def fresh(code, *arguments):
    """Run code in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120
    )


WITHOUT_HELP = {"serve"}
"""Commands that hand all their words on."""


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS if name not in WITHOUT_HELP)],
    ids=" ".join,
)
def test_help_imports_none_of_the_heavy_packages(words):
    code = (
        "import sys, json\nfrom repobuild.cli import main\nstatus = main(sys.argv[1:])\n"
        "print('\\n' + json.dumps([status, sorted(sys.modules)]))"
    )
    done = fresh(code, *words)
    status, modules = json.loads(done.stdout.splitlines()[-1])
    assert status == 0, done.stderr
    loaded = [m for m in modules if any(m == h or m.startswith(h + ".") for h in HEAVY)]
    assert loaded == []


def test_every_module_imports_without_any_framework_or_runtime():
    """As in an environment without torch, scikit-learn, skl2onnx, joblib, pandas and ONNX Runtime."""
    code = """
import importlib, sys
ABSENT = {"torch", "sklearn", "skl2onnx", "joblib", "onnxruntime", "pandas", "scipy", "tensorrt"}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
for name in sys.argv[1:]:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print("imported", len(sys.argv) - 1)
"""
    done = fresh(code, *MODULES)
    assert done.stdout.startswith("imported"), done.stderr
    assert len(MODULES) > 60


def test_without_onnx_runtime_both_extras_are_named(tmp_path):
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "onnxruntime":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from pathlib import Path
from repobuild.worker.onnx_session import open_session
try:
    open_session(Path("model.onnx"))
except Exception as problem:
    print(problem)
"""
    said = fresh(code).stdout
    assert "error[onnxruntime-missing]" in said
    assert "repobuild[cpu]" in said
    assert "repobuild[gpu]" in said


def test_commands_are_listed_with_their_summaries(repobuild_cli):
    outcome = repobuild_cli("--help")
    assert outcome.status == 0
    for name in COMMANDS:
        assert f"\n  {name} " in outcome.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["convrt"], "Did you mean 'convert'?"),
        (["xyz"], "There are init, plan, convert, build, "),
        (["convert"], "Missing argument 'RECIPE_OR_MODEL'"),
        (["build", "."], "Missing option '-r'"),
        (["build", ".", "-r", ""], "the path is empty"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
        (["convert", "r.yaml", "-r", "d", "--progress", "loud"], "'loud' is not one of"),
        (["inspect"], "Missing argument 'PATH'"),
        (["convert", "", "-r", "d"], "the path is empty"),
        (["build", " ", "-r", "d"], "the path is empty"),
        (["plan", ""], "the path is empty"),
        (["inspect", ""], "the path is empty"),
        (["validate", ""], "the path is empty"),
        (["init", ""], "the path is empty"),
        (["init", "m.joblib", "-o", ""], "the path is empty"),
        (["init", "m.joblib", "-o", "."], "'.' is a folder"),
        (["convert", "r.yaml", "-r", "d", "--report", ""], "the path is empty"),
        (["convert", "r.yaml", "-r", "d", "--junit", "/"], "'/' is a folder"),
        (["convert", "r.yaml"], "Missing option"),
        (["convert", "r.yaml", "-r", "d", "--trust", "everything"], "'everything' is not one of"),
        (["explain", "recipe-invalit"], "recipe-invalid"),
    ],
)
def test_usage_errors_have_status_2_and_say_what_is_near(repobuild_cli, words, said):
    outcome = repobuild_cli(*words)
    assert outcome.status == 2
    assert said in " ".join(outcome.err.split())


def test_an_error_code_is_explained(repobuild_cli):
    outcome = repobuild_cli("explain", "source-untrusted")
    assert outcome.status == 0
    assert outcome.out.startswith("source-untrusted (exit status 6)\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_repobuild_itself(repobuild_cli, shell):
    outcome = repobuild_cli("completion", shell)
    assert outcome.status == 0
    assert f"_REPOBUILD_COMPLETE={shell}_complete" in outcome.out


def test_words_are_completed():
    environment = {**os.environ, "_REPOBUILD_COMPLETE": "bash_complete", "COMP_WORDS": "repobuild val"}
    done = subprocess.run(
        [Path(sys.executable).with_name("repobuild")],
        env={**environment, "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "plain,validate\n"


def test_a_missing_recipe_has_status_3(repobuild_cli, tmp_path):
    outcome = repobuild_cli("convert", tmp_path / "no.yaml", "-r", tmp_path / "models")
    assert outcome.status == 3
    assert "error[recipe-missing]" in outcome.err


def test_a_fault_of_ours_has_status_70_and_no_traceback(repobuild_cli, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("repobuild.catalog.as_markdown", broken)
    monkeypatch.setattr("repobuild.commands.explain.as_markdown", broken)
    outcome = repobuild_cli("explain")
    assert outcome.status == 70
    assert "error[bug]" in outcome.err
    assert "Traceback" not in outcome.err
    assert "Traceback" in repobuild_cli("--debug", "explain").err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after", ["load", "export", "check", "stage"])
def test_an_interrupted_build_leaves_nothing(risk_project, tmp_path, tree, number, after):
    """The signal is sent when the step before the interrupted one has been reported."""
    before = tree(tmp_path)
    target = tmp_path / "deep" / "repository"
    process = subprocess.Popen(
        [sys.executable, "-m", "repobuild", "convert", risk_project, "-r", target, "--trust", "pickle"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.split()[:1] == [after]:
                process.send_signal(number)
                break
        rest = process.stderr.read()
        process.wait(60)
    assert process.returncode == 130, [*lines, rest]
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert tree(tmp_path) == before
    assert not (tmp_path / "deep").exists()
    assert no_child_left(tmp_path)


def no_child_left(folder):
    """Whether all workers and servers of builds below a folder have ended; that takes a moment."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if not any(works_below(process, str(folder)) for process in psutil.process_iter()):
            return True
        time.sleep(0.05)
    return False


def works_below(process, folder):
    """Whether a process has the folder in its command line or is at home in it."""
    try:
        return any(folder in word for word in [*process.cmdline(), process.cwd()])
    except psutil.Error:
        return False


def test_an_interrupt_while_the_modules_are_imported_is_told(monkeypatch, capsys):
    class Interrupted:
        def find_spec(self, name, path=None, target=None):
            if name == "repobuild.cli":
                raise KeyboardInterrupt

    from repobuild.__main__ import main as start

    monkeypatch.delitem(sys.modules, "repobuild.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert start() == 130
    assert capsys.readouterr().err == "interrupted; nothing was begun\n"
