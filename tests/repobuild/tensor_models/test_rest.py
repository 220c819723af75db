"""The model's process while the graph is tried: its memory comes back, and it answers again when asked."""

import os
import signal
import textwrap

import numpy as np
import psutil
import pytest

from repobuild.errors import ConversionFailed
from repobuild.recipe.load import load_recipe
from repobuild.sources.find import open_source
from repobuild.sources.interface import Trust
from tests.repobuild.tensor_models.conftest import rows


def children():
    return {p.pid for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE}


@pytest.fixture
def opened(net, linear, tmp_path):
    """A source with its model loaded, and its samples."""
    given = {"x": rows(5, 4)}
    recipe = load_recipe(net(linear, given).recipe)
    before = children()
    work = tmp_path / "work"
    work.mkdir()
    with open_source(recipe, work) as source:
        source.vouch(Trust(frozenset({"module"})))
        columns = [{"name": "x", "dtype": "float32", "shape": [5, 4]}]
        source.describe_tensors(recipe, {"named": True, "columns": columns})
        yield source, given, work, lambda: children() - before
    assert children() <= before


def test_the_model_gives_its_memory_back_and_answers_as_before(opened):
    source, given, work, alive = opened
    (first,) = source.ask([given])
    made = source.export_tensors(None, work / "made.onnx", given, {"x": {0: "batch"}})
    assert alive()
    source.try_graph(made.path)
    assert not alive(), "neither the model's process nor that of the trial is left"
    (again,) = source.ask([given])
    np.testing.assert_array_equal(again["output"], first["output"])


def test_a_graph_that_the_runtime_refuses_or_crashes_on_is_told(opened, tmp_path, monkeypatch):
    source, _, work, alive = opened
    bad = work / "bad.onnx"
    bad.write_bytes(b"\x08\x0a\x12")
    with pytest.raises(ConversionFailed) as caught:
        source.try_graph(bad)
    assert caught.value.code == "runtime-refuses"
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        textwrap.dedent(f"""
            import os
            from repobuild.transforms import run
            run.open_session = lambda path, libraries: os.kill(os.getpid(), {int(signal.SIGSEGV)})
        """)
    )
    monkeypatch.setenv("PYTHONPATH", str(hook) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    with pytest.raises(ConversionFailed) as caught:
        source.try_graph(bad)
    assert caught.value.code == "runtime-crashes"
    assert not alive()
