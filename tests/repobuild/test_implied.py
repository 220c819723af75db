"""Recipes made of a command line: settings, model files alone, and names made from file names."""

from pathlib import Path

import pytest

from repobuild.errors import Evidence, InputInvalid, UsageProblem
from repobuild.recipe.implied import Setting, document_digest, parse_setting, pointed, safe_name, wanted


@pytest.mark.parametrize(
    ("text", "at", "value"),
    [
        ("export.opset=18", ("export", "opset"), 18),
        ("name=churn", ("name",), "churn"),
        ("name=", ("name",), None),
        ("outputs[0].from=probabilities[:, 1:2]", ("outputs", 0, "from"), "probabilities[:, 1:2]"),
        ('tolerance."a.b".atol=1e-3', ("tolerance", "a.b", "atol"), 1e-3),
        ("serving={max_batch_size: 4}", ("serving",), {"max_batch_size": 4}),
        ("inputs[0].dims=[2]", ("inputs", 0, "dims"), [2]),
        ("a[0][1]=x=y", ("a", 0, 1), "x=y"),
    ],
)
def test_a_setting_is_a_key_path_and_a_yaml_value(text, at, value):
    assert parse_setting(text) == Setting(at, value, f"--set {text}")


@pytest.mark.parametrize(
    "text", ["export.opset", "=1", "a..b=1", "[0]=1", "a]=1", "a.=1", "a[x]=1", "a=[1", "a=2020-01-01"]
)
def test_what_is_no_setting_is_refused_with_status_2(text):
    with pytest.raises(UsageProblem) as caught:
        parse_setting(text)
    assert caught.value.code == "setting-malformed"
    assert caught.value.evidence[0].file == f"--set {text}"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("churn", "churn"),
        ("Team Churn (v2)", "Team_Churn_v2"),
        ("a..b", "a.b"),
        ("--x", "x"),
        ("_x_", "_x_"),
        ("_x (1)_", "x_1"),
        ("モデル", "model"),
        ("a" * 200, "a" * 128),
        ("..", "model"),
        ("v1.2", "v1.2"),
    ],
)
def test_any_text_becomes_a_safe_name(text, name):
    from repobuild.recipe.schema import RecipeDocument

    assert safe_name(text) == name
    assert RecipeDocument(name=name, source={"path": "m"}, samples="s").name == name


def test_a_model_file_alone_makes_a_recipe_relative_to_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    want = wanted(
        Path("Team Churn (v2).joblib"),
        [Setting(("samples",), "rows.npy", "--samples rows.npy"), parse_setting("export.opset=15")],
    )
    recipe = want.recipe
    assert recipe.name == "Team_Churn_v2"
    assert [n.startswith("the model is named 'Team_Churn_v2'") for n in want.notes] == [True]
    assert recipe.source.path == tmp_path / "Team Churn (v2).joblib"
    assert recipe.samples == tmp_path / "rows.npy"
    assert (recipe.opset, recipe.file, dict(recipe.lines)) == (15, None, {})
    assert recipe.digest == document_digest(
        {
            "source": {"path": "Team Churn (v2).joblib"},
            "name": "Team_Churn_v2",
            "samples": "rows.npy",
            "export": {"opset": 15},
        }
    )


def test_a_safe_name_is_taken_as_it_is_without_a_note():
    assert wanted(Path("churn.joblib"), [Setting(("samples",), "x.npy", "--samples x.npy")]).notes == ()


def test_settings_go_over_a_recipe_and_their_mistakes_point_at_them(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("name: m\nsource: {path: m.joblib}\nsamples: s.npy\nexport: {opset: 17}\nextra: 1\n")
    settings = [parse_setting("export.opset=99"), parse_setting("outputs[0].name=P")]
    with pytest.raises(InputInvalid) as caught:
        wanted(file, settings)
    places = {e.key: (e.file, e.line) for e in caught.value.evidence}
    assert places == {
        "export.opset": ("--set export.opset=99", None),
        "extra": (str(file), 5),
    }


def test_a_recipe_with_settings_keeps_file_and_folder_and_gets_a_digest_of_its_own(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("name: m\nsource: {path: m.joblib}\nsamples: s.npy\n")
    plain, other = wanted(tmp_path).recipe, wanted(tmp_path, [parse_setting("name=n")]).recipe
    assert (plain.name, other.name) == ("m", "n")
    assert plain.source.path == other.source.path == tmp_path / "m.joblib"
    assert other.file == file
    assert plain.digest != other.digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name.x=1", "the key before it is not a mapping"),
        ("source[0]=1", "the key before it is not a list"),
        ("outputs[3].name=x", "the list has 0 items"),
    ],
)
def test_a_setting_that_does_not_fit_the_recipe_is_named(tmp_path, text, said):
    (tmp_path / "recipe.yaml").write_text("name: m\nsource: {path: m.joblib}\nsamples: s.npy\n")
    with pytest.raises(InputInvalid) as caught:
        wanted(tmp_path, [parse_setting(text)])
    assert [(e.text, e.file) for e in caught.value.evidence] == [(said, f"--set {text}")]


def test_errors_found_later_point_at_the_setting_too():
    error = InputInvalid("samples-unfit", "no", (Evidence("x", key="samples"), Evidence("y", "f", 3, "name")))
    moved = pointed(error, [Setting(("samples",), "a.npy", "--samples a.npy")])
    assert moved.evidence == (Evidence("x", file="--samples a.npy", key="samples"), error.evidence[1])
    assert (moved.code, moved.hint, type(moved)) == (error.code, error.hint, InputInvalid)
    assert pointed(error, []) is error
