"""Standard streams that are closed, full or no longer read: what was done stands, and the status says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no /dev/full")
ROWS = np.random.default_rng(0).normal(size=(20, 2))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    import joblib

    folder = tmp_path_factory.mktemp("home")
    joblib.dump(LogisticRegression().fit(ROWS, (ROWS[:, 0] > 0).astype(int)), folder / "model.joblib")
    np.save(folder / "samples.npy", ROWS)
    recipe = {"name": "m", "source": {"path": "model.joblib"}, "samples": "samples.npy"}
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    return folder


def shell(home, line):
    command = f"exec 3>&2; {line}"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", command], cwd=home, env=environment, capture_output=True, text=True, timeout=300
    )


CONVERT = "repobuild convert recipe.yaml --trust pickle -q -r"


@needs_full
def test_a_full_standard_output_does_not_hide_that_a_version_was_published(home):
    done = shell(home, f"{CONVERT} full > /dev/full")
    assert done.returncode == 7
    assert "error[output-failed]" in done.stderr
    assert "Traceback" not in done.stderr
    assert (home / "full" / "m" / "1" / "model.onnx").is_file()
    assert "only the printing failed" in done.stderr


@needs_full
@pytest.mark.parametrize(
    "words", ["schema", "explain", "inspect recipe.yaml --json", "convert no.yaml -r x --json"]
)
def test_no_command_ends_in_a_traceback_on_a_full_output(home, words):
    done = shell(home, f"repobuild {words} > /dev/full")
    assert "Traceback" not in done.stderr
    assert done.returncode == (3 if "no.yaml" in words else 7), done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_change_nothing(home, closed):
    name = f"closed{len(closed)}{closed[0]}".replace(">", "o").replace("<", "i")
    done = shell(home, f"{CONVERT} {name} {closed}")
    assert done.returncode == 0, done.stderr
    assert (home / name / "m" / "1" / "model.onnx").is_file()


@pytest.mark.parametrize("to", ["2>&-", pytest.param("2>/dev/full", marks=needs_full)])
def test_messages_that_cannot_be_written_leave_the_status_as_it_is(home, to):
    assert shell(home, f"repobuild convert no.yaml -r x {to}").returncode == 3
    done = shell(home, f"repobuild convert no.yaml -r x --json {to}")
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"]["code"] == "recipe-missing"


def test_nobody_need_read_the_output(home):
    done = shell(home, 'repobuild explain | true; echo "${PIPESTATUS[0]}"')
    assert done.stdout.strip() == "0"
    assert done.stderr == ""
    done = shell(home, 'repobuild convert no.yaml -r x --json 2>/dev/null | true; echo "${PIPESTATUS[0]}"')
    assert done.stdout.strip() == "3"


def test_results_go_through_links_devices_and_pipes(home):
    (home / "there.json").write_text("old")
    (home / "link.json").symlink_to("there.json")
    done = shell(home, f"{CONVERT} through --report link.json --junit /dev/stdout")
    assert done.returncode == 0, done.stderr
    assert (home / "link.json").is_symlink()
    assert json.loads((home / "there.json").read_text())["outcome"] == "pass"
    assert "<testsuites" in done.stdout
    assert Path("/dev/stdout").is_symlink()
    os.mkfifo(home / "pipe")
    done = shell(home, f"cat pipe > read & {CONVERT} through --report pipe; wait")
    assert done.returncode == 0, done.stderr
    assert (home / "pipe").is_fifo()
    assert json.loads((home / "read").read_text())["outcome"] == "pass"


@needs_full
def test_a_device_stays_a_device(home):
    done = shell(home, f"{CONVERT} device --report /dev/full")
    assert FULL.is_char_device()
    assert done.returncode == 7
    assert "error[disk-full]" in done.stderr


@pytest.mark.parametrize("name", ["recipe.yaml", "model.joblib", "samples.npy"])
@pytest.mark.parametrize("option", ["--report", "--junit"])
def test_what_a_build_reads_is_not_overwritten(home, name, option, repobuild_cli):
    before = (home / name).read_bytes()
    outcome = repobuild_cli("convert", home, "-r", home / "spared", "--trust", "pickle", option, home / name)
    assert outcome.status == 3
    assert "error[output-is-input]" in outcome.err
    assert (home / name).read_bytes() == before
    assert not (home / "spared").exists()


def test_the_recipes_of_a_build_and_what_is_linted_are_spared_too(home, repobuild_cli):
    before = (home / "recipe.yaml").read_bytes()
    outcome = repobuild_cli("build", home, "-r", home / "spared", "--junit", home / "recipe.yaml")
    assert (outcome.status, "error[output-is-input]" in outcome.err) == (3, True)
    assert (home / "recipe.yaml").read_bytes() == before
    config = home / "linted" / "a" / "config.pbtxt"
    config.parent.mkdir(parents=True)
    config.write_text('name: "a"\nbackend: "python"\n')
    outcome = repobuild_cli("lint", home / "linted", "--output", config)
    assert (outcome.status, "error[output-is-input]" in outcome.err) == (3, True)
    assert config.read_text().startswith("name")


def test_one_file_cannot_take_two_results(home, repobuild_cli):
    outcome = repobuild_cli(
        "convert", home, "-r", home / "x", "--report", home / "one", "--junit", home / "one"
    )
    assert outcome.status == 2
    assert "name the same file" in outcome.err
