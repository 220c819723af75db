"""What README and docs promise is run or looked up."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from repobuild.cli import COMMANDS
from repobuild.commands._options import FLAGS
from repobuild.envelope import JSON_COMMANDS, Dialogue
from repobuild.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_OK, KINDS
from repobuild.recipe.ensemble_schema import EnsembleDocument
from repobuild.recipe.schema import RecipeDocument
from repobuild_serve.cli import command as SERVER  # noqa: N812 - a table, as COMMANDS is

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RECIPES = sorted((ROOT / "recipes").glob("*/recipe.yaml"))


def block(language, word, page=README):
    """The block of a language that holds a word, by default in the README."""
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, flags=re.DOTALL)
    [found] = [text for kind, text in blocks if kind == language and word in text]
    return found


def trained(recipe, tmp_path):
    """A copy of a worked example, trained by its own script."""
    home = tmp_path / recipe.parent.name
    shutil.copytree(recipe.parent, home, ignore=shutil.ignore_patterns("*.joblib", "*.np?", "*.safetensors"))
    subprocess.run([sys.executable, home / "train.py"], check=True, capture_output=True, timeout=120)
    return home


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda p: p.parent.name)
def test_every_worked_example_converts(recipe, tmp_path, repobuild_cli):
    home = trained(recipe, tmp_path)
    vouched = ("--trust", "pickle", "--trust", "module")
    outcome = repobuild_cli("convert", home, "-r", tmp_path / "models", *vouched)
    assert outcome.status == 0, outcome.err


def test_the_recipe_of_the_readme_is_the_worked_example():
    yaml = YAML(typ="safe")
    assert yaml.load(block("yaml", "samples: samples.npy ")) == yaml.load(
        (ROOT / "recipes" / "risk_model" / "recipe.yaml").read_text()
    )


def test_the_readme_serves_and_asks_as_it_says(tmp_path, repobuild_cli, served):
    home = trained(ROOT / "recipes" / "risk_model" / "recipe.yaml", tmp_path)
    repository = tmp_path / "models"
    assert repobuild_cli("convert", home, "-r", repository, "--trust", "pickle").status == 0
    words = re.search(r"\.venv/bin/repobuild serve (\S+) --http-port \d+\n", block("sh", "repobuild serve"))
    assert words[1] == "build/demo/repository"
    asked = re.search(
        r"curl -s http://127.0.0.1:8972/v2/models/(\w+)/infer -d '(.*?)'", README, flags=re.DOTALL
    )
    [tensor] = json.loads(asked[2])["inputs"]
    want = json.loads(block("json", "model_name"))
    with served(repository) as server:
        got = server.infer(asked[1], tensor)
    [number] = want["outputs"][0].pop("data")
    assert got["outputs"][0].pop("data") == [pytest.approx(number, abs=1e-6)]
    assert got == want


def test_the_page_on_pytorch_converts_as_it_says(tmp_path, repobuild_cli, monkeypatch):
    page = (ROOT / "docs" / "pytorch-and-onnx.md").read_text()
    for name in ("net.py", "train.py"):
        (tmp_path / name).write_text(block("python", f"# {name}", page))
    (tmp_path / "recipe.yaml").write_text(block("yaml", "weights.safetensors", page))
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    program, *words = block("sh", "repobuild convert", page).split()
    assert program == "repobuild"
    monkeypatch.chdir(tmp_path)
    outcome = repobuild_cli(*words)
    assert outcome.status == 0, outcome.err
    shapes = re.findall(
        r"dims: \[ (.*?) \]", (tmp_path / "models" / "classifier" / "config.pbtxt").read_text()
    )
    assert shapes[:2] == ["3, 32, 32", "10"]


def test_every_make_target_of_the_readme_and_contributing_exists():
    makefile = (ROOT / "Makefile").read_text()
    text = README + (ROOT / "CONTRIBUTING.md").read_text()
    targets = set(re.findall(r"^make ([a-z-]+)", text, flags=re.MULTILINE))
    assert {"demo", "test", "lint", "test-slow", "env", "bench"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_every_command_is_in_the_readme():
    for name in COMMANDS:
        assert f"repobuild {name}" in README


def test_every_command_and_its_json_are_described():
    page = (ROOT / "docs" / "commands.md").read_text()
    for name in COMMANDS:
        assert f"\n## `repobuild {name}`\n" in page, name
        assert f"\nrepobuild {name}" in page or f"repobuild {name} " in page, name
    [json_section] = re.findall(r"\n## `--json`\n\n(.*?)\n\n", page, flags=re.DOTALL)
    assert set(re.findall(r"`(\w+)`", json_section)) == JSON_COMMANDS
    assert json.loads(block("json", '"exit_code"', page)).keys() == json.loads(Dialogue().envelope(0)).keys()


def test_every_option_of_convert_that_sets_a_key_is_described():
    page = (ROOT / "docs" / "commands.md").read_text()
    for option, at in FLAGS:
        assert f"`--{option.replace('_', '-')}`" in page, option
        assert f"`{'.'.join(at)}`" in page, option


def test_every_exit_status_is_described():
    page = (ROOT / "docs" / "commands.md").read_text()
    statuses = {kind.exit_code for kind in KINDS.values()} | {EXIT_OK, EXIT_BUG, EXIT_INTERRUPTED}
    assert {int(s) for s in re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE)} == statuses


def test_every_recipe_key_is_documented():
    page = (ROOT / "docs" / "recipes.md").read_text()

    def keys(model, prefix=""):
        for name, field in model.model_fields.items():
            shown = field.alias or name
            yield prefix + shown
            for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
                if isinstance(inner, type) and hasattr(inner, "model_fields"):
                    many = "[]" if getattr(field.annotation, "__origin__", None) is list else ""
                    yield from keys(inner, f"{prefix}{shown}{many}.")

    sections = {
        "source",
        "target",
        "inputs",
        "outputs",
        "export",
        "tolerance",
        "budget",
        "ensemble",
        "ensemble.steps",
    }  # documented by their own keys
    every = [*keys(RecipeDocument), *keys(EnsembleDocument)]
    missing = [k for k in every if k not in sections and f"`{k}`" not in page]
    assert missing == []


def test_every_dependency_has_a_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    wanted += [text for extra in project["project"]["optional-dependencies"].values() for text in extra]
    tested = (ROOT / "tests" / "serve" / "differential" / "requirements.txt").read_text().splitlines()
    wanted += [line for line in tested if not line.startswith("#")]
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "licenses.md").read_text(), flags=re.MULTILINE)
    named = {name.lower() for row in rows for name in row.split(", ")}
    assert {re.split(r"[\[<>=]", text)[0] for text in wanted} <= named


def test_every_option_of_the_server_is_described():
    page = (ROOT / "docs" / "serving.md").read_text()
    options = [word for option in SERVER.params for word in option.opts if word.startswith("--")]
    assert [option for option in options if f"`{option}" not in page] == []


def test_links_lead_to_files():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"
