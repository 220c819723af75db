"""``repobuild lint``: paths, formats, exit statuses, and the pages written from its table."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from repobuild.lint.rules import RULES, as_markdown

ROOT = Path(__file__).resolve().parents[3]
_spec = importlib.util.spec_from_file_location("lint_samples_command", Path(__file__).with_name("samples.py"))
s = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(s)

WRONG = s.onnx(s.PLAIN.replace("  dims: [2]", "  dims: [4]"))
TRAP = s.onnx(s.PLAIN + "instance_group { count: 0 }\n")


def test_a_clean_repository_exits_with_0(repository, repobuild_cli):
    """The last line says how much was looked at."""
    outcome = repobuild_cli("lint", repository(s.onnx() | s.python(name="n")))
    assert (outcome.status, outcome.out) == (0, "nothing found in 2 models, for Triton 26.08\n")


def test_an_error_exits_with_3_and_names_line_and_rule(repository, repobuild_cli):
    """Path, line, severity, rule, message; then the hint and a summary."""
    root = repository(WRONG)
    outcome = repobuild_cli("lint", root)
    assert outcome.status == 3
    first, hint, last = outcome.out.splitlines()
    assert first == (
        f"{root}/m/config.pbtxt:6: error[onnx-input-dims]: input 'x': the model expects [-1, 2], the "
        "configuration says [-1, 4] with the batch axis that max_batch_size adds"
    )
    assert hint == "    hint: with max_batch_size above 0, dims go without the batch axis"
    assert last == "1 error in 1 model, for Triton 26.08"


def test_warnings_fail_only_when_strict(repository, repobuild_cli):
    """A trap exits with 0, with --strict 3, and with --ignore it is not told."""
    root = repository(TRAP)
    assert repobuild_cli("lint", root).status == 0
    assert repobuild_cli("lint", root, "--strict").status == 3
    ignoring = repobuild_cli("lint", root, "--strict", "--ignore", "instance-count")
    assert (ignoring.status, ignoring.out) == (0, "nothing found in 1 model, for Triton 26.08\n")


def test_a_path_may_be_a_model_or_a_configuration(repository, repobuild_cli, monkeypatch):
    """Also from inside the folders."""
    root = repository(WRONG | s.onnx(name="n"))
    for path in (root, root / "m", root / "m" / "config.pbtxt"):
        outcome = repobuild_cli("lint", path)
        assert outcome.status == 3
        assert f"{root}/m/config.pbtxt:6: error[onnx-input-dims]" in outcome.out
    assert repobuild_cli("lint", root / "n").status == 0
    monkeypatch.chdir(root / "m")
    for path in (".", "config.pbtxt", "../m"):
        assert repobuild_cli("lint", path).status == 3
    monkeypatch.chdir(root)
    assert repobuild_cli("lint", ".").out.startswith("m/config.pbtxt:6: error")


def test_variants_of_a_configuration_are_checked_too(repository, repobuild_cli):
    """configs/<name>.pbtxt with the whole model, and alone."""
    root = repository(s.onnx() | {"m/configs/t4.pbtxt": WRONG["m/config.pbtxt"]})
    for path in (root, root / "m" / "configs" / "t4.pbtxt"):
        outcome = repobuild_cli("lint", path)
        assert f"{root}/m/configs/t4.pbtxt:6: error[onnx-input-dims]" in outcome.out
        assert outcome.out.splitlines()[-1].startswith("1 error ")
    assert repobuild_cli("lint", root / "m" / "config.pbtxt").status == 0


@pytest.mark.parametrize("what", ["nothing", "empty", "text", "other", "project"])
def test_a_path_without_a_model_is_refused(tmp_path, repobuild_cli, what):
    """Silence about the wrong path would look like a clean result."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("x")
    (tmp_path / "other").mkdir()
    for folder in ("src", ".git/1"):
        (tmp_path / "project" / folder).mkdir(parents=True)
    (tmp_path / "other" / "readme.txt").write_text("x")
    outcome = repobuild_cli("lint", tmp_path / what)
    assert outcome.status == 3
    assert "error[not-a-repository]" in outcome.err


def test_mistakes_on_the_command_line_exit_with_2(repository, repobuild_cli):
    """No path, an unknown rule, an unknown format; an unknown release is told with near ones."""
    root = repository(s.onnx())
    assert repobuild_cli("lint").status == 2
    assert repobuild_cli("lint", root, "--format", "xml").status == 2
    unknown = repobuild_cli("lint", root, "--ignore", "dot-files")
    assert unknown.status == 2
    assert "did you mean 'dot-file'?" in unknown.err
    release = repobuild_cli("lint", root, "--target", "24.13")
    assert release.status == 3
    assert "error[release-unknown]" in release.err


def test_the_target_release_decides(repository, repobuild_cli):
    """Opset 22 is too new for 24.10, and not for 25.03."""
    root = repository(s.onnx(model=s.graph(opset=22)))
    old = repobuild_cli("lint", root, "--target", "24.10")
    assert old.status == 3
    assert "opset 22 of ai.onnx; Triton 24.10 (ONNX Runtime 1.19.2) loads up to 21" in old.out
    assert repobuild_cli("lint", root, "--target", "25.03").status == 0


def test_json_is_a_versioned_document(repository, repobuild_cli):
    """Every field of a finding, for every path given."""
    root = repository(WRONG)
    good = repository(s.onnx(), "good")
    document = json.loads(repobuild_cli("lint", root, good, "--format", "json").out)
    assert (document["format"], document["kind"], document["target"]) == (1, "lint", "26.08")
    assert document["summary"] == {"error": 1, "warning": 0, "note": 0}
    bad, fine = document["results"]
    assert (bad["path"], bad["models"], fine["findings"]) == (str(root), ["m"], [])
    (found,) = bad["findings"]
    assert found["rule"] == "onnx-input-dims"
    assert (found["file"], found["line"], found["column"]) == ("m/config.pbtxt", 6, 10)
    assert found["severity"] == "error"
    assert found["hint"] == RULES["onnx-input-dims"].hint


def test_sarif_has_the_shape_that_code_scanning_reads(repository, repobuild_cli, monkeypatch, tmp_path):
    """Version, schema, rules, and results with relative locations."""
    repository(WRONG | TRAP_BESIDE | {"n/read me": b"x"})
    monkeypatch.chdir(tmp_path)
    document = json.loads(repobuild_cli("lint", "models", "--format", "sarif").out)
    assert document["version"] == "2.1.0"
    assert document["$schema"] == "https://json.schemastore.org/sarif-2.1.0.json"
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "repobuild lint"
    ids = [r["id"] for r in driver["rules"]]
    assert ids == ["instance-count", "name-unsafe", "onnx-input-dims"]
    for rule in driver["rules"]:
        assert set(rule) == {"id", "shortDescription", "help", "defaultConfiguration"}
        assert rule["shortDescription"]["text"] == RULES[rule["id"]].what
        assert "helpUri" not in rule
    seen = []
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        region = place.get("region", {})
        assert region.get("startLine", 1) >= 1
        seen.append((result["ruleId"], place["artifactLocation"]["uri"], region.get("startLine")))
    assert seen == [
        ("onnx-input-dims", "models/m/config.pbtxt", 6),
        ("instance-count", "models/n/config.pbtxt", 13),
        ("name-unsafe", "models/n/read%20me", None),
    ]


def test_output_goes_to_a_file(repository, repobuild_cli, tmp_path):
    """The file holds what would be printed; one that cannot be written is an error of the environment."""
    root = repository(WRONG)
    shown = repobuild_cli("lint", root)
    written = repobuild_cli("lint", root, "--output", tmp_path / "lint.txt")
    assert (written.status, written.out) == (3, "")
    assert (tmp_path / "lint.txt").read_text() == shown.out
    assert repobuild_cli("lint", root, "--output", tmp_path / "no" / "lint.txt").status == 7


def test_every_rule_is_listed(repobuild_cli):
    """--rules needs no path."""
    outcome = repobuild_cli("lint", "--rules")
    assert outcome.status == 0
    for name, rule in RULES.items():
        assert f"{name} ({rule.severity.value})\n    {rule.what}\n" in outcome.out


def test_the_page_is_written_from_the_table():
    """docs/lint.md is what the table gives."""
    assert (ROOT / "docs/lint.md").read_text(encoding="utf-8") == as_markdown()


def test_every_rule_is_planted_somewhere():
    """A rule that no test breaks on purpose is a rule that nobody has seen work."""
    texts = "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in RULES if f'"{name}"' not in texts] == []


TRAP_BESIDE = {name.replace("m/", "n/", 1): content for name, content in TRAP.items()}
