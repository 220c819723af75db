"""What CI systems get: JUnit XML and the summary of a GitHub Actions job."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from repobuild.ci import append_summary, as_junit, as_summary
from repobuild.errors import CheckFailed, Evidence, InputInvalid
from repobuild.many import Built
from repobuild.report import Check, Fail, Pass, Report, Skip

REPORT = Report(
    model="a",
    version=3,
    changed=True,
    source={},
    samples={},
    signature=None,
    checks=(
        Check("equal: <label>", Fail('row 3: "x" & \x1b[2J')),
        Check("other", Skip("not made")),
        Check("third", Pass("fine")),
    ),
    verification=(),
    notes=(),
    tools=(),
)
BUILT = (
    Built(Path("a/recipe.yaml"), "a", "failed", REPORT, CheckFailed("check-failed", "it differs | <b>")),
    Built(
        Path("b.recipe.yaml"),
        None,
        "failed",
        None,
        InputInvalid("recipe-invalid", "no", (Evidence("``` x"),)),
    ),
    Built(Path("c.recipe.yaml"), "c", "skipped"),
)


def test_junit_has_a_suite_a_model_and_a_case_a_check():
    root = ET.fromstring(as_junit(BUILT))
    suites = {s.get("name"): s for s in root.iter("testsuite")}
    assert list(suites) == ["a", "b.recipe.yaml", "c"]
    counts = {n: [s.get(k) for k in ("tests", "failures", "errors", "skipped")] for n, s in suites.items()}
    assert counts == {
        "a": ["4", "1", "1", "1"],
        "b.recipe.yaml": ["1", "0", "1", "0"],
        "c": ["1", "0", "0", "1"],
    }
    cases = {c.get("name"): c for c in suites["a"]}
    assert cases["equal: <label>"].find("failure").get("message") == 'row 3: "x" & \\x1b[2J'
    assert cases["other"].find("skipped").get("message") == "not made"
    assert list(cases["third"]) == []
    assert cases["build"].find("error").get("type") == "check-failed"


def test_the_summary_is_a_table_with_what_failed_below_it():
    text = as_summary(BUILT)
    assert "| a | failed | 1 of 3 | `check-failed`: it differs \\| &lt;b> |" in text
    assert "| c | skipped | 0 of 0 |  |" in text
    assert "\n### b.recipe.yaml\n\n````text\nerror[recipe-invalid]: no\n  - ``` x\n````\n" in text


def test_the_summary_is_appended_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert append_summary(BUILT) is None
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    assert append_summary(BUILT) is None
    assert file.read_text() == "before\n" + as_summary(BUILT)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "summary.md"))
    assert append_summary(BUILT).startswith("the job summary could not be written: ")


@pytest.mark.parametrize(
    ("trust", "status", "error"), [(["--trust", "pickle"], 0, None), ([], 6, "source-untrusted")]
)
@pytest.mark.parametrize("command", ["convert", "build"])
def test_both_commands_write_them(
    risk_project, tmp_path, repobuild_cli, monkeypatch, command, trust, status, error
):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    junit = tmp_path / "junit.xml"
    outcome = repobuild_cli(command, risk_project, "-r", tmp_path / "models", "--junit", junit, *trust)
    assert outcome.status == status
    [suite] = ET.fromstring(junit.read_text()).iter("testsuite")
    assert suite.get("name") == "risk_model"
    assert (int(suite.get("tests")) > 8) == (status == 0)
    assert [e.get("type") for e in suite.iter("error")] == ([error] if error else [])
    assert "| risk_model | " in (tmp_path / "summary.md").read_text()


def test_a_bad_path_costs_nothing(risk_project, tmp_path, repobuild_cli):
    outcome = repobuild_cli(
        "build",
        risk_project,
        "-r",
        tmp_path / "models",
        "--trust",
        "pickle",
        "--junit",
        tmp_path / "no" / "j.xml",
    )
    assert outcome.status == 7
    assert "opening the JUnit file" in outcome.err
    assert not (tmp_path / "models").exists()
