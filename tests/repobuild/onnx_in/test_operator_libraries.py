"""Libraries of custom operators: vouched for, run in child processes only, shipped and found by a server."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

from repobuild.artifact import file_digest
from repobuild.emit.config import read_config
from repobuild.emit.libraries import library_mistakes
from repobuild.emit.workshop import state_folder
from repobuild.errors import VerificationFailed
from repobuild.verify.server import BundledServer
from repobuild.worker.arrays import load_batch
from tests.operators import NAME, copy_library, upper_model

TEXTS = [["a", "b", "c"], ["hello", "x", "Yz"], ["", "q", "r s"], ["m", "n", "o"]]


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    copy_library(folder)
    onnx.save(upper_model(), folder / "model.onnx")
    np.savez(folder / "samples.npz", text=np.array(TEXTS))
    return folder


@pytest.fixture
def convert(home, tmp_path, repobuild_cli):
    def run(*words, custom_ops=(NAME,), trust=("--trust", "module"), **recipe):
        document = {
            "name": "loud",
            "source": {"path": "model.onnx", "custom_ops": list(custom_ops)},
            "samples": "samples.npz",
            **recipe,
        }
        (home / "recipe.yaml").write_text(json.dumps(document))
        return repobuild_cli("convert", home / "recipe.yaml", "-r", tmp_path / "models", *trust, *words)

    return run


def paths(message):
    return list(message.model_operations.op_library_filename)


def test_a_library_is_shipped_with_the_model_under_a_name_of_its_content(convert, home, tmp_path):
    outcome = convert()
    assert outcome.status == 0, outcome.err
    digest = file_digest(home / NAME)
    shipped = f"libtext-{digest[:12]}.so"
    model = tmp_path / "models" / "loud"
    assert file_digest(model / shipped) == digest
    assert paths(read_config(model)[1]) == [shipped]
    records = state_folder(tmp_path / "models") / "loud" / "1"
    manifest = json.loads((records / "manifest.json").read_text())
    assert manifest["carries_code"] is True
    assert manifest["source"]["libraries"] == {NAME: digest}
    assert f"a server finds {shipped} only if it is started with LD_LIBRARY_PATH" in outcome.err
    assert "the graph was not optimised" in outcome.err
    golden = load_batch(records / "golden.npz")
    assert golden["output/loud"].tolist() == [[t.upper() for t in row] for row in TEXTS]


def test_the_bundled_server_finds_it_as_triton_does(convert, tmp_path, monkeypatch):
    assert convert().status == 0
    models = tmp_path / "models"
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(VerificationFailed) as caught, BundledServer(models, work):
        pass
    told = "\n".join(e.text for e in caught.value.evidence)
    assert f"LD_LIBRARY_PATH={models / 'loud'}" in told
    monkeypatch.setenv("LD_LIBRARY_PATH", str(models / "loud"))
    with BundledServer(models, work):
        pass


def test_its_code_never_runs_in_the_builder_itself(convert, tmp_path):
    assert convert().status == 0  # in this process
    assert "libtext" not in Path("/proc/self/maps").read_text()


def test_nothing_is_loaded_without_a_word(convert, tmp_path):
    outcome = convert(trust=())
    assert outcome.status == 6
    assert "error[source-untrusted]" in outcome.err
    assert NAME in outcome.err
    assert not (tmp_path / "models").exists()


def test_a_library_that_changed_gets_another_name_and_the_old_one_goes(convert, home, tmp_path):
    assert convert().status == 0
    model = tmp_path / "models" / "loud"
    (before,) = model.glob("*.so")
    again = convert()
    assert "unchanged" in again.out
    copy_library(home, build=8)
    assert convert().status == 0
    (after,) = model.glob("*.so")
    assert after.name != before.name
    assert paths(read_config(model)[1]) == [after.name]


@pytest.mark.parametrize(
    ("stated", "found", "ships"),
    [
        ("/models/loud/", "/models/loud/{shipped}", True),
        (f"/opt/operators/{NAME}", f"/opt/operators/{NAME}", False),
        (f"./{NAME}", f"./{NAME}", False),
    ],
)
def test_the_recipe_may_say_where_the_server_has_it(convert, home, tmp_path, stated, found, ships):
    outcome = convert(serving={"model_operations": {"op_library_filename": [stated]}})
    assert outcome.status == 0, outcome.err
    model = tmp_path / "models" / "loud"
    shipped = f"libtext-{file_digest(home / NAME)[:12]}.so"
    assert paths(read_config(model)[1]) == [found.format(shipped=shipped)]
    assert (model / shipped).exists() is ships
    assert "verified with that library from where it lies here" in outcome.err


def test_a_configuration_edited_by_hand_is_verified_with_its_own_library(convert, home, tmp_path):
    assert convert().status == 0
    config = tmp_path / "models" / "loud" / "config.pbtxt"
    config.write_text(config.read_text().replace("intra_op", "inter_op"))
    copy_library(home, build=8)
    onnx.save(changed(), home / "model.onnx")
    outcome = convert()
    assert outcome.status == 0, outcome.err
    assert outcome.out.strip().splitlines()[-1].startswith("PASSED loud version 2")
    assert len(list(config.parent.glob("*.so"))) == 1


def changed():
    model = upper_model()
    model.graph.node[0].name = "other"
    model.graph.name = "another"
    model.graph.node[1].input[0] = "text"
    model.graph.node[1].output[0] = "quiet"
    model.graph.node[0].input[0] = "quiet"
    model.graph.node[0].output[0] = "loud"
    model.graph.node.reverse()
    return model


@pytest.mark.parametrize(
    ("names", "code", "told"),
    [
        (["libabsent.so"], "library-unusable", "there is no library libabsent.so"),
        (["operators.dll"], "option-unfit", "must end with .so"),
        (["some.module"], "option-unfit", "must end with .so"),
        ([NAME, f"sub/{NAME}"], "option-unfit", f"two libraries under custom_ops are called {NAME}"),
        (["plain.so"], "library-unusable", "undefined symbol: RegisterCustomOps"),
        (["text.so"], "library-unusable", "ONNX Runtime cannot use the library text.so"),
        ([], "model-unloadable", "operator StringUpper of domain ai.onnx.contrib"),
    ],
)
def test_what_is_no_library_of_the_operators_is_named(convert, home, tmp_path, names, code, told):
    import _multiprocessing

    shutil.copy(_multiprocessing.__file__, home / "plain.so")
    (home / "text.so").write_text("no library")
    outcome = convert(custom_ops=names)
    assert f"error[{code}]" in outcome.err
    assert told in outcome.err
    assert not (tmp_path / "models").exists()


def compiled(source, to):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a library with")
    to.with_suffix(".c").write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", to.with_suffix(".c"), "-o", to], check=True)


def test_a_library_that_crashes_takes_only_the_child_with_it(convert, home, tmp_path):
    compiled(
        "#include <stdlib.h>\nint RegisterCustomOps(void *a, const void *b) { abort(); }", home / "bad.so"
    )
    outcome = convert(custom_ops=["bad.so"])
    assert outcome.status == 7
    assert "error[worker-crashed]" in outcome.err
    assert not (tmp_path / "models").exists()


def test_a_library_with_other_operators_is_told_from_none(convert, home):
    compiled("int RegisterCustomOps(void *a, const void *b) { return 0; }", home / "other.so")
    outcome = convert(custom_ops=["other.so"])
    assert "error[model-unloadable]" in outcome.err
    assert "other.so registers other operators" in outcome.err


@pytest.mark.parametrize(
    ("recipe", "code", "told"),
    [
        (
            {"targets": [{"kind": "onnxruntime", "precision": "fp16"}]},
            "option-unfit",
            "precision: fp16 does not apply",
        ),
        (
            {"custom_ops": [], "serving": {"model_operations": {"op_library_filename": ["/x.so"]}}},
            "serving-unfit",
            "the recipe has none",
        ),
        (
            {"serving": {"model_operations": {"op_library_filename": ["/x.so"]}}},
            "serving-unfit",
            "'x.so' is none of the libraries",
        ),
    ],
)
def test_what_does_not_go_with_libraries_is_refused(convert, recipe, code, told):
    outcome = convert(**recipe)
    assert outcome.status == 3
    assert f"error[{code}]" in outcome.err
    assert told in outcome.err


@pytest.mark.parametrize(
    ("stated", "wrong"),
    [
        ([], []),
        (["/models/m/"], []),
        (["/opt/a.so", "lib/b.so"], []),
        (["/opt/a.so"], [(0, "no path is given for b.so")]),
        (["/opt/a.so", "/x/a.so"], [(1, "'a.so' is named twice"), (1, "no path is given for b.so")]),
        (
            ["/opt/", "b.so"],
            [(0, "'/opt/' is a folder, and must be the only entry"), (1, "no path is given for a.so")],
        ),
        (
            ["a.so", "c.so"],
            [
                (1, "'c.so' is none of the libraries under source: custom_ops"),
                (1, "no path is given for b.so"),
            ],
        ),
    ],
)
def test_paths_name_every_library_once(stated, wrong):
    assert list(library_mistakes(stated, ["a.so", "b.so"])) == wrong


def test_other_models_take_no_libraries(home, tmp_path, repobuild_cli):
    from sklearn.linear_model import LogisticRegression

    rows = np.random.RandomState(0).rand(20, 3)
    estimator = LogisticRegression().fit(rows, rows[:, 0] > 0.5)
    import joblib

    joblib.dump(estimator, home / "model.joblib")
    np.save(home / "rows.npy", rows)
    document = {
        "name": "rows",
        "source": {"path": "model.joblib", "custom_ops": [NAME]},
        "samples": "rows.npy",
    }
    (home / "rows.yaml").write_text(json.dumps(document))
    trust = ("--trust", "module", "--trust", "pickle")
    for command in ("convert", "plan"):
        outcome = repobuild_cli(command, home / "rows.yaml", "-r", tmp_path / "models", *trust)
        assert "custom_ops does not apply to a scikit-learn model" in outcome.err + outcome.out


def test_a_torch_module_takes_none_either(home, tmp_path, repobuild_cli):
    import torch

    (home / "net.py").write_text("import torch\n\nclass Net(torch.nn.Linear):\n    pass\n")
    torch.save(torch.nn.Linear(3, 2).state_dict(), home / "weights.pt")
    np.savez(home / "rows.npz", input=np.ones((4, 3), np.float32))
    document = {
        "name": "net",
        "source": {
            "path": "weights.pt",
            "custom_ops": [NAME],
            "module": {
                "file": "net.py",
                "class": "Net",
                "kwargs": {"in_features": 3, "out_features": 2},
            },
        },
        "samples": "rows.npz",
    }
    (home / "net.yaml").write_text(json.dumps(document))
    outcome = repobuild_cli("convert", home / "net.yaml", "-r", tmp_path / "models", "--trust", "module")
    assert outcome.status == 3
    assert "custom_ops does not apply to a model that takes tensors" in outcome.err


def test_plan_names_the_libraries_and_the_trust_that_they_need(convert, home, repobuild_cli):
    convert(trust=())
    outcome = repobuild_cli("plan", home / "recipe.yaml")
    assert NAME in outcome.out
    assert "--trust module" in outcome.out + outcome.err


def test_validate_misses_a_library_and_sees_a_changed_one(convert, tmp_path, repobuild_cli):
    assert convert().status == 0
    (library,) = (tmp_path / "models" / "loud").glob("*.so")
    with library.open("ab") as stream:
        stream.write(b"x")
    outcome = repobuild_cli("validate", tmp_path / "models")
    assert outcome.status != 0
    assert f"{library.name} was changed since it was written" in outcome.out + outcome.err
    library.unlink()
    outcome = repobuild_cli("validate", tmp_path / "models")
    assert outcome.status != 0
    assert f"names a library '{library.name}' that is not there" in outcome.out + outcome.err


def test_lint_says_where_the_server_looks(convert, tmp_path, repobuild_cli):
    assert convert().status == 0
    outcome = repobuild_cli("lint", tmp_path / "models")
    assert outcome.status == 0
    assert "op-library-search" in outcome.out


def test_an_ensemble_may_have_such_a_step(home, tmp_path, repobuild_cli):
    (home / "split.py").write_text(
        "import numpy as np\n\n\ndef run(inputs):\n"
        "    rows = [t.decode().split(',') for t in inputs['LINE'].ravel()]\n"
        "    return {'text': np.array(rows, dtype=object)}\n"
    )
    (home / "loud.yaml").write_text(
        json.dumps({"name": "loud", "source": {"path": "model.onnx", "custom_ops": [NAME]}})
    )
    np.savez(home / "lines.npz", LINE=np.array([[",".join(row)] for row in TEXTS]))
    step = {
        "name": "split",
        "python": {
            "file": "split.py",
            "inputs": [{"name": "LINE", "dtype": "BYTES", "dims": [1]}],
            "outputs": [{"name": "text", "dtype": "BYTES", "dims": [3]}],
        },
    }
    loud = {
        "name": "loud",
        "recipe": "loud.yaml",
        "input_map": {"text": "text"},
        "output_map": {"loud": "loud"},
    }
    document = {
        "name": "whole",
        "ensemble": {"steps": [step, loud]},
        "samples": "lines.npz",
        "serving": {"max_batch_size": 4},
    }
    (home / "whole.yaml").write_text(json.dumps(document))
    models = tmp_path / "models"
    outcome = repobuild_cli("convert", home / "whole.yaml", "-r", models, "--trust", "module")
    assert outcome.status == 0, outcome.err
    (library,) = models.glob("*/*.so")
    assert paths(read_config(library.parent)[1]) == [library.name]
    for model in ("whole", library.parent.name):
        (manifest,) = (state_folder(models) / model).glob("*/manifest.json")
        assert json.loads(manifest.read_text())["carries_code"] is True
