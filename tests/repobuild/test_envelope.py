"""The contract of ``--json``: one envelope on standard output, whatever happens, words on standard error."""

import json
import signal
import subprocess
import sys

import jsonschema
import pytest

from repobuild.cli import COMMANDS
from repobuild.envelope import JSON_COMMANDS, Dialogue, annotate
from repobuild.errors import Evidence, InputInvalid

EVIDENCE = {
    "type": "object",
    "required": ["text", "file", "line", "key"],
    "additionalProperties": False,
    "properties": {
        "text": {"type": "string"},
        "file": {"type": ["string", "null"]},
        "line": {"type": ["integer", "null"]},
        "key": {"type": ["string", "null"]},
    },
}
ENVELOPE = {
    "type": "object",
    "required": ["format", "command", "outcome", "exit_code", "result", "error", "notes"],
    "additionalProperties": False,
    "properties": {
        "format": {"const": 1},
        "command": {"enum": sorted(JSON_COMMANDS)},
        "outcome": {"enum": ["ok", "error", "interrupted"]},
        "exit_code": {"type": "integer"},
        "result": {"type": ["object", "null"]},
        "error": {
            "type": ["object", "null"],
            "required": ["code", "message", "evidence", "hint"],
            "additionalProperties": False,
            "properties": {
                "code": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
                "message": {"type": "string"},
                "evidence": {"type": "array", "items": EVIDENCE},
                "hint": {"type": ["string", "null"]},
            },
        },
        "notes": {"type": "array", "items": {"type": "string"}},
    },
}


def envelope(outcome):
    """The one document on standard output, checked against the contract."""
    [line] = outcome.out.splitlines()
    document = json.loads(line)
    jsonschema.validate(document, ENVELOPE)
    assert document["exit_code"] == outcome.status
    assert (document["outcome"] == "ok") == (outcome.status == 0)
    assert (document["error"] is None) == (outcome.status == 0)
    return document


@pytest.fixture
def built(risk_project, tmp_path, repobuild_cli):
    """The lesson's model in a repository."""
    repository = tmp_path / "models"
    assert repobuild_cli("convert", risk_project, "-r", repository, "--trust", "pickle").status == 0
    return repository


def test_every_command_with_a_result_gives_an_envelope(built, risk_project, tmp_path, repobuild_cli):
    words = {
        "convert": [risk_project, "-r", built, "--trust", "pickle"],
        "build": [risk_project, "-r", built, "--trust", "pickle"],
        "plan": [risk_project, "-r", built, "--trust", "pickle"],
        "inspect": [built],
        "validate": [built],
        "doctor": [],
        "init": [risk_project / "model.joblib", "-o", tmp_path / "drafted.yaml"],
    }
    assert words.keys() == JSON_COMMANDS
    for command, rest in words.items():
        outcome = repobuild_cli(command, *rest, "--json")
        assert outcome.status == 0, outcome.err
        document = envelope(outcome)
        assert document["command"] == command
        assert document["result"]


def test_json_commands_are_commands():
    assert COMMANDS.keys() >= JSON_COMMANDS


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (["convert", "no.yaml", "-r", "models", "--json"], 3, "recipe-missing"),
        (["convert", "--json", "no.joblib", "-r", "models"], 3, "model-missing"),
        (["build", "nowhere", "-r", "models", "--json"], 3, "recipes-missing"),
        (["plan", "no.yaml", "--json"], 3, "recipe-missing"),
        (["inspect", "nothing", "--json"], 3, "model-missing"),
        (["validate", "nothing", "--json"], 3, "repository-missing"),
        (["init", "no.joblib", "--json"], 3, "model-missing"),
        (["convert", "--json"], 2, "usage"),
        (["convert", "r.yaml", "-r", "m", "--bogus", "--json"], 2, "usage"),
        (["plan", "r.yaml", "--set", "x", "--json"], 2, "setting-malformed"),
        (["doctor", "more", "--json"], 2, "usage"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_errors_and_usage_errors_are_in_the_envelope_too(
    repobuild_cli, tmp_path, monkeypatch, words, status, code
):
    monkeypatch.chdir(tmp_path)
    outcome = repobuild_cli(*words)
    assert outcome.status == status
    assert envelope(outcome)["error"]["code"] == code
    assert outcome.err


def test_a_refused_build_has_its_findings_in_the_envelope(risk_project, tmp_path, repobuild_cli):
    outcome = repobuild_cli("convert", risk_project, "-r", tmp_path / "models", "--json")
    document = envelope(outcome)
    assert (outcome.status, document["error"]["code"]) == (6, "source-untrusted")
    assert document["result"]["model"] == "risk_model"


def test_a_fault_of_ours_is_in_the_envelope(repobuild_cli, monkeypatch, tmp_path):
    def broken(*_):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("repobuild.inspecting.modelfile.inspect_model", broken)
    document = envelope(repobuild_cli("inspect", tmp_path / "x", "--json"))
    assert (document["exit_code"], document["error"]["code"]) == (70, "bug")


@pytest.mark.parametrize(
    "words", [["inspect", "recipes", "--json"], ["inspect", "nothing", "--json"], ["schema"]]
)
def test_a_reader_that_has_gone_is_no_fault(words):
    done = subprocess.run(
        [
            "bash",
            "-c",
            'exec "$@" | true; exit ${PIPESTATUS[0]}',
            "x",
            sys.executable,
            "-m",
            "repobuild",
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_help_prints_help_and_no_envelope(repobuild_cli):
    outcome = repobuild_cli("convert", "--json", "--help")
    assert outcome.status == 0
    assert outcome.out.startswith("Usage: repobuild convert")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_says_so_in_the_envelope(risk_project, tmp_path, number):
    command = [sys.executable, "-m", "repobuild", "build"]
    process = subprocess.Popen(
        [*command, risk_project, "-r", tmp_path / "models", "--trust", "pickle", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        for line in process.stderr:
            if line.split()[:1] == ["load"]:
                process.send_signal(number)
                break
        rest = process.stderr.read()
        out = process.stdout.read()
        process.wait(60)
    document = json.loads(out)
    jsonschema.validate(document, ENVELOPE)
    assert (process.returncode, document["exit_code"]) == (130, 130)
    assert (document["outcome"], document["error"]["code"]) == ("interrupted", "interrupted")
    assert "interrupted" in rest
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("words", "command", "wanted"),
    [
        (["convert", "x", "--json"], "convert", True),
        (["--debug", "plan", "--json"], "plan", True),
        (["convert", "--", "--json"], "convert", False),
        (["serve", "r", "--json"], "serve", False),
        (["--json"], None, False),
        ([], None, False),
    ],
)
def test_whether_an_envelope_is_wanted_is_read_from_the_words(words, command, wanted):
    talk = Dialogue.of(words)
    assert (talk.command, talk.json) == (command, wanted)


ERROR = InputInvalid(
    "recipe-invalid",
    "two mistakes: 100%",
    (Evidence("line\none", "a,b:c.yaml", 3, "export.opset"), Evidence("two", "--set x=1")),
)


def test_in_github_actions_errors_are_annotations_with_what_must_be_escaped(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b:c.yaml").touch()
    annotate(ERROR)
    assert capsys.readouterr().err == (
        "::error file=a%2Cb%3Ac.yaml,line=3,title=repobuild recipe-invalid"
        "::two mistakes: 100%25: export.opset: line%0Aone\n"
    )
    annotate(InputInvalid("recipe-invalid", "none"))
    assert capsys.readouterr().err == "::error title=repobuild recipe-invalid::none\n"


def test_elsewhere_there_are_no_annotations(monkeypatch, capsys):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    annotate(ERROR)
    assert capsys.readouterr().err == ""


def test_a_wrong_recipe_is_annotated_at_its_line(monkeypatch, repobuild_cli, tmp_path):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (tmp_path / "recipe.yaml").write_text("name: m\nsource: {path: m.joblib}\nsamples: s.npy\nbogus: 1\n")
    outcome = repobuild_cli("convert", tmp_path, "-r", tmp_path / "models")
    assert outcome.status == 3
    assert f"::error file={tmp_path / 'recipe.yaml'},line=4,title=repobuild recipe-invalid::" in outcome.err
