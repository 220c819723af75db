"""Which source reads a file, what it says before it loads it, and what vouches for it."""

import hashlib
import io
import json
import os
import pickle
import zipfile

import cloudpickle
import joblib
import numpy as np
import pytest
import sklearn.base
import skops.io
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from repobuild.errors import (
    ConversionFailed,
    EnvironmentLacking,
    InputInvalid,
    RepobuildError,
    SourceUntrusted,
)
from repobuild.recipe.load import load_recipe
from repobuild.sources import find, made_with
from repobuild.sources.content import KINDS, content_of
from repobuild.sources.find import open_source
from repobuild.sources.in_child import _open_doors
from repobuild.sources.interface import Trust
from repobuild.sources.made_with import Mismatch, blame_versions, mismatches, pip_line
from repobuild.sources.pickled import PickledSource
from repobuild.sources.skops_file import SkopsSource

ROWS = np.random.default_rng(0).normal(size=(40, 3))
MODEL = LogisticRegression().fit(ROWS, ROWS[:, 0] > 0)
LAMBDA = make_pipeline(FunctionTransformer(lambda rows: rows * rows), MODEL)
NOBODY, PICKLE = Trust(), Trust(frozenset({"pickle"}))


def joblib_bytes(model=MODEL, **options):
    stream = io.BytesIO()
    joblib.dump(model, stream, **options)
    return stream.getvalue()


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), data)
    return stream.getvalue()


@pytest.fixture
def recipe(tmp_path):
    """A recipe for a file of these bytes, and a private folder: ``recipe(data, name=..., kind=...)``."""

    def make(data, name="model.joblib", **source):
        (tmp_path / name).write_bytes(data)
        document = {"name": "m", "source": {"path": name, **source}, "samples": "rows.npy"}
        (tmp_path / "recipe.yaml").write_text(json.dumps(document))
        folder = tmp_path / "private"
        folder.mkdir(exist_ok=True)
        return load_recipe(tmp_path / "recipe.yaml"), folder

    return make


WRITTEN = {
    "joblib": joblib_bytes,
    "joblib compressed": lambda: joblib_bytes(compress=3),
    "pickle": lambda: pickle.dumps(MODEL),
    "pickle 0": lambda: pickle.dumps(MODEL, 0),
    "cloudpickle": lambda: cloudpickle.dumps(LAMBDA),
    "skops": lambda: skops.io.dumps(MODEL),
}


@pytest.mark.parametrize("name", ["model.bin", "model.joblib", "model.pkl", "model.skops", "model"])
@pytest.mark.parametrize("how", WRITTEN)
@pytest.mark.parametrize("kind", [None, "auto", "sklearn"])
def test_the_content_decides_which_source_reads_a_file(recipe, how, name, kind):
    source = open_source(*recipe(WRITTEN[how](), name, **({"kind": kind} if kind else {})))
    assert source.kind == how.partition(" ")[0]
    assert isinstance(source, SkopsSource if how == "skops" else PickledSource)


@pytest.mark.parametrize("how", ["joblib", "joblib compressed", "pickle", "pickle 0", "skops"])
def test_every_kind_is_loaded_and_described(recipe, how):
    made, folder = recipe(WRITTEN[how]())
    with open_source(made, folder) as source:
        source.vouch(PICKLE)
        model = source.describe(made)
    assert model.model == "sklearn.linear_model.LogisticRegression"
    assert model.facts["kind"] == how.partition(" ")[0]
    assert model.facts["trained_with"]["scikit-learn"] == [sklearn.__version__]
    assert model.facts["sandbox"]["network"].startswith(("cut by", "not cut: "))


def test_another_flavour_than_the_recipe_names_is_read_and_noted(recipe):
    made, folder = recipe(pickle.dumps(MODEL), kind="cloudpickle")
    source = open_source(made, folder)
    assert source.kind == "pickle"
    assert source.notes_before() == ["the recipe says that model.joblib is cloudpickle; it is pickle"]


def test_a_plain_pickle_is_what_joblib_writes_without_arrays(recipe):
    made, folder = recipe(pickle.dumps(MODEL), kind="joblib")
    assert open_source(made, folder).notes_before() == []


@pytest.mark.parametrize(
    ("how", "kind"), [("skops", "joblib"), ("skops", "pickle"), ("joblib", "skops"), ("pickle", "skops")]
)
def test_a_file_of_another_kind_than_the_recipe_names_is_refused(recipe, how, kind):
    with pytest.raises(InputInvalid) as caught:
        open_source(*recipe(WRITTEN[how](), kind=kind))
    assert caught.value.code == "kind-mismatch"
    assert KINDS["skops" if how == "skops" else "pickle"] in caught.value.message


OTHERS = {
    "xgboost": b"{L\x00\x00\x00\x00\x00\x00\x00\x07learner{",
    "xgboost json": b'{"learner":{"attributes":{}}}',
    "lightgbm": b"tree\nversion=v4\nnum_class=1\n",
    "catboost": b"CBM1\x10\x00\x00\x00",
    "keras": zipped(config_dot_json=b"{}", model_dot_weights_dot_h5=b""),
    "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(30),
    "npy": b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }",
    "parquet": b"PAR1" + bytes(30),
    "gguf": b"GGUF" + bytes(30),
    "tflite": b"\x1c\x00\x00\x00TFL3" + bytes(30),
    "zip": zipped(readme=b"x"),
}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("name", ["model.joblib", "model.pkl", "model"])
def test_files_that_are_not_converted_yet_are_named_for_what_they_are(recipe, what, name):
    with pytest.raises(ConversionFailed) as caught:
        open_source(*recipe(OTHERS[what], name)).vouch(NOBODY)
    tensorflow = what in ("keras", "hdf5", "tflite")
    assert caught.value.code == ("source-tensorflow" if tensorflow else "source-unsupported")
    assert KINDS[what.partition(" ")[0]] in caught.value.message


@pytest.mark.parametrize("kind", ["xgboost", "lightgbm", "catboost"])
def test_a_recipe_may_name_a_kind_that_is_not_converted_yet(recipe, kind):
    with pytest.raises(ConversionFailed, match="not converted yet"):
        open_source(*recipe(OTHERS[kind], kind=kind)).vouch(NOBODY)


@pytest.mark.parametrize("kind", ["torch", "pt2", "torchscript", "onnx", "lightgbm"])
@pytest.mark.parametrize(
    "data", [joblib_bytes(), skops.io.dumps(MODEL), b"hello world"], ids=["j", "s", "junk"]
)
def test_a_file_is_never_taken_for_the_kind_that_a_recipe_names_wrongly(recipe, kind, data):
    with pytest.raises(InputInvalid) as caught:
        open_source(*recipe(data, kind=kind))
    assert caught.value.code == "kind-mismatch"


def test_a_network_that_is_not_cut_is_noted():
    reached = {"network": "not cut: no means", "processes": "kept in one group", "writes": "anywhere: none"}
    assert _open_doors(reached) == ["network of the model's child process: not cut: no means"]


def test_weights_that_import_more_than_tensors_are_untrusted(recipe):
    weights = (
        b"\x80\x02}(X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n"
        b"FloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQK\x00)))tRu"
    )
    honest, odd = zipped(n__data_dot_pkl=weights + b"."), zipped(n__data_dot_pkl=weights + b"cmy.net\nNet\n.")
    with pytest.raises(InputInvalid) as caught:
        open_source(*recipe(honest)).vouch(NOBODY)
    assert caught.value.code == "module-needed"
    with pytest.raises(SourceUntrusted) as caught:
        open_source(*recipe(odd)).vouch(NOBODY)
    assert [e.text for e in caught.value.evidence] == ["n/data.pkl: loading it would import my.net.Net"]
    open_source(*recipe(odd)).vouch(PICKLE)


MODELS = {
    "onnx": b"\x08\x0a\x12\x08skl2onnx\x1a\x061.20.0",
    "torch": zipped(net__data_dot_pkl=b"\x80\x02}.", net__version=b"3"),
    "torch old": b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}.\x80\x02}.\x80\x02].",
    "torchscript": zipped(m__data_dot_pkl=b"\x80\x02}.", m__constants_dot_pkl=b"\x80\x02).", m__version=b"3"),
    "pt2": zipped(m__archive_format=b"pt2", m__models__model_dot_json=b"{}"),
    "torch safetensors": b"\x40\x00\x00\x00\x00\x00\x00\x00" + b'{"w":{"dtype":"F32"}}',
}


@pytest.mark.parametrize("what", MODELS)
@pytest.mark.parametrize("name", ["model.joblib", "model"])
def test_models_that_take_tensors_are_found_by_their_content(recipe, what, name):
    source = open_source(*recipe(MODELS[what], name))
    assert (source.kind, source.takes) == (what.partition(" ")[0], "tensors")


def test_junk_is_of_no_known_kind(recipe):
    with pytest.raises(InputInvalid) as caught:
        open_source(*recipe(b"hello world", "model.dat"))
    assert caught.value.code == "model-kind-unknown"
    with pytest.raises(InputInvalid) as caught:
        open_source(*recipe(b"hello world"))
    assert caught.value.code == "model-not-pickle"


def test_cloudpickle_tells_what_code_it_carries(recipe):
    class Local:
        def method(self):
            return 1

    Local.__module__ = "__main__"
    made, folder = recipe(cloudpickle.dumps([LAMBDA, Local()]))
    source = open_source(made, folder)
    with pytest.raises(SourceUntrusted) as caught:
        source.vouch(NOBODY)
    said = [e.text for e in caught.value.evidence]
    assert "loading it would CALL cloudpickle.cloudpickle._make_function" in said
    assert "it carries the code of function <lambda>" in said
    assert any(line.startswith("it carries the code of class ") and "Local" in line for line in said)
    assert any(line.endswith("Local.method") for line in said)
    known = source.known_before()
    assert "function <lambda>" in known["carries"]
    assert made_with._fits(known["trained_with"]["python"][0], made_with.installed_version("python"))


def test_modules_that_cloudpickle_imports_by_name_are_among_the_imports(recipe):
    def asks():
        return os.getpid()

    asks.__module__ = "__main__"
    source = open_source(*recipe(cloudpickle.dumps(asks)))
    assert "os" in source.known_before()["imports"]


@pytest.fixture
def old_model(monkeypatch):
    """A model as scikit-learn 1.2.2 would have saved it: ``old_model(write)``."""

    def make(write=joblib_bytes):
        monkeypatch.setattr(sklearn.base, "__version__", "1.2.2")
        data = write(make_pipeline(StandardScaler(), LogisticRegression()).fit(ROWS, ROWS[:, 0] > 0))
        monkeypatch.undo()
        return data

    return make


@pytest.mark.parametrize(
    "write", [joblib_bytes, pickle.dumps, skops.io.dumps], ids=["joblib", "pickle", "skops"]
)
def test_another_version_is_noted_before_anything_is_loaded(recipe, old_model, write):
    made, folder = recipe(old_model(write))
    with open_source(made, folder) as source:
        source.vouch(PICKLE)
        assert source.known_before()["trained_with"]["scikit-learn"] == ["1.2.2"]
        [note] = [n for n in source.notes_before() if "scikit-learn" in n]
    here = sklearn.__version__
    assert note == f"model.joblib: the model was saved with scikit-learn 1.2.2; {here} is installed here"


def test_a_load_that_fails_names_the_version_and_how_to_get_it(recipe, old_model):
    data = old_model(lambda m: pickle.dumps(m, 0)).replace(b"LogisticRegression", b"LogisticRegressioN")
    made, folder = recipe(data)
    with open_source(made, folder) as source:
        source.vouch(PICKLE)
        with pytest.raises(EnvironmentLacking) as caught:
            source.describe(made)
    assert caught.value.code == "class-missing"
    assert "the model was saved with scikit-learn 1.2.2" in caught.value.render()
    assert "pip install scikit-learn==1.2.2;" in caught.value.hint


def test_a_load_that_fails_under_the_same_version_blames_no_version(recipe):
    made, folder = recipe(pickle.dumps(MODEL, 0).replace(b"LogisticRegression", b"LogisticRegressioN"))
    with open_source(made, folder) as source:
        source.vouch(PICKLE)
        with pytest.raises(EnvironmentLacking) as caught:
            source.describe(made)
    assert "pip install" not in caught.value.render()


def test_versions_that_only_the_form_tells_are_compared_too(monkeypatch):
    here = {"numpy": "2.4.6", "pandas": None, "python": "3.11.7", "scikit-learn": "1.9.1"}
    monkeypatch.setattr(made_with, "installed_version", here.get)
    found = mismatches(
        {
            "numpy": ("<2", ">=2"),
            "pandas": ("<2",),
            "python": (">=3.13,<3.14",),
            "scikit-learn": ("1.9.1", "1.5.0"),
        }
    )
    assert found == (
        Mismatch("numpy", "<2", "2.4.6"),
        Mismatch("pandas", "<2", None),
        Mismatch("python", ">=3.13,<3.14", "3.11.7"),
        Mismatch("scikit-learn", "1.5.0", "1.9.1"),
    )
    assert pip_line(found) == "pip install 'numpy<2' 'pandas<2' scikit-learn==1.5.0"
    assert str(found[1]) == "the model was saved with pandas <2; it is not installed here"


def test_an_error_that_no_version_explains_stays_as_it_is():
    problem = InputInvalid("not-an-estimator", "it holds a dict")
    assert blame_versions(problem, (Mismatch("scikit-learn", "1.2.2", "1.9.1"),)) is problem


def test_an_error_with_likelier_causes_keeps_its_hint():
    problem = InputInvalid("samples-refused", "it refuses the samples", (), "the samples must be rows")
    blamed = blame_versions(problem, (Mismatch("scikit-learn", "1.2.2", "1.9.1"),))
    assert blamed.hint == "the samples must be rows"
    assert "saved with scikit-learn 1.2.2" in blamed.evidence[-1].text


@pytest.mark.parametrize("version", ["1.2.2; rm -rf /", "$(id)", "\x1b[2J", "1" * 50, "", "v1"])
def test_a_version_that_is_none_is_not_repeated(recipe, version):
    data = pickle.dumps({"m": MODEL.__getstate__() | {"_sklearn_version": version}})
    assert "scikit-learn" not in open_source(*recipe(data)).known_before()["trained_with"]


def with_unknown_type():
    return skops.io.dumps(make_pipeline(FunctionTransformer(os.path.abspath), MODEL))


def test_skops_types_that_skops_does_not_know_are_named_and_must_be_vouched_for(recipe):
    data = with_unknown_type()
    made, folder = recipe(data)
    with open_source(made, folder) as source:
        for trust in (NOBODY, Trust(frozenset({"module", "torchscript"}))):
            with pytest.raises(SourceUntrusted) as caught:
                source.vouch(trust)
        assert [e.text for e in caught.value.evidence] == ["loading it would import posixpath.abspath"]
        source.vouch(PICKLE)
        assert source.known_before()["unknown_types"] == ["posixpath.abspath"]
    pinned, folder = recipe(data, sha256=hashlib.sha256(data).hexdigest())
    with open_source(pinned, folder) as source:
        source.vouch(NOBODY)
        with pytest.raises(RepobuildError) as caught:
            source.describe(pinned)
    assert "Untrusted" not in caught.value.render()


@pytest.mark.parametrize("schema", [b"", b"[]", b"{}", b"nonsense", b'{"protocol": 99, "content": {}}'])
def test_a_skops_file_that_skops_cannot_read_is_damaged(recipe, schema):
    with (
        open_source(*recipe(zipped(schema_dot_json=schema))) as source,
        pytest.raises(RepobuildError) as caught,
    ):
        source.vouch(NOBODY)
    assert caught.value.code == "model-damaged"


@pytest.mark.parametrize(
    "data", [joblib_bytes(), skops.io.dumps(MODEL), MODELS["torch"]], ids=["j", "s", "t"]
)
def test_a_pin_of_another_file_wins_over_any_trust(recipe, data):
    made, folder = recipe(data, sha256="0" * 64)
    with open_source(made, folder) as source, pytest.raises(SourceUntrusted) as caught:
        source.vouch(PICKLE)
    assert caught.value.code == "pin-mismatch"


@pytest.mark.parametrize("kinds", [{"module"}, {"torchscript"}, {"module", "torchscript"}, {"skops"}])
def test_only_trust_in_pickles_opens_pickles(recipe, kinds):
    with pytest.raises(SourceUntrusted):
        open_source(*recipe(joblib_bytes())).vouch(Trust(frozenset(kinds)))


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_the_file_that_was_scanned_is_the_file_that_is_loaded(recipe, tmp_path):
    data = joblib_bytes()
    made, folder = recipe(data, sha256=hashlib.sha256(data).hexdigest())
    with open_source(made, folder) as source:
        made.source.path.write_bytes(pickle.dumps(Trap(tmp_path / "ran")))
        source.vouch(NOBODY)
        made.source.path.unlink()
        assert source.describe(made).model == "sklearn.linear_model.LogisticRegression"
    assert not (tmp_path / "ran").exists()


def test_a_file_swapped_after_the_first_look_is_judged_again(recipe, tmp_path, monkeypatch):
    made, folder = recipe(skops.io.dumps(MODEL))
    looked = find._look

    def swap(recipe):
        content = looked(recipe)
        recipe.source.path.write_bytes(pickle.dumps(Trap(tmp_path / "ran")))
        return content

    monkeypatch.setattr(find, "_look", swap)
    with pytest.raises(InputInvalid) as caught:
        open_source(made, folder)
    assert caught.value.code == "kind-mismatch"
    assert not (tmp_path / "ran").exists()


def test_honest_models_are_told_by_their_content(tmp_path):
    for how, write in WRITTEN.items():
        (tmp_path / "m").write_bytes(write())
        wanted = {"skops": "skops", "pickle 0": "unknown"}.get(how, "pickle")
        assert content_of(tmp_path / "m").kind == wanted, how
