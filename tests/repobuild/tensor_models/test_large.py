"""Graphs with large weights are left unoptimised, and a note says so."""

from repobuild.tensor_models import graph
from tests.repobuild.tensor_models.conftest import rows


def test_a_graph_with_external_data_is_left_alone_and_told(net, convert, linear, monkeypatch, tmp_path):
    whole = graph.store
    monkeypatch.setattr(graph, "store", lambda model, data, to: whole(model, data, to, embed=0))
    project = net(linear.replace("nn.Linear(4, width)", "nn.Linear(4, 256)"), {"x": rows(5, 4)})
    outcome = convert(project)
    assert outcome.status == 0, outcome.err
    assert "the graph was not optimised, since its weights are large" in outcome.err
    version = tmp_path / "repository" / "model" / "1"
    assert sorted(p.name for p in version.iterdir()) == ["model.onnx", "model.onnx.data"]
