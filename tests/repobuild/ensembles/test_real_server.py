"""An emitted ensemble of python steps on the real tritonserver: the same answers as on the bundled one."""

import json
import shutil

import numpy as np
import pytest
from oracle import servers
from oracle.wire import Request

TEXTS = ["the quick brown fox", "hi", "na\u00efve caf\u00e9 \u65e5\u672c", "", "eleven letters"]


@pytest.fixture(scope="module")
def real():
    """Skip where the real server cannot be had."""
    reason = servers.unavailable()
    if reason is not None:
        pytest.skip(reason)


def request(model, texts, shape=None):
    """A JSON request with texts."""
    tensor = {"name": "TEXT", "shape": shape or [len(texts), 1], "datatype": "BYTES", "data": texts}
    return Request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}).encode())


def answers(kind, repository, requests):
    """Status and document of each answer."""
    with servers.serve(kind, repository) as server:
        return [(a.status, json.loads(a.body)) for a in map(server.ask, requests)]


def by_name(document):
    """Outputs by name; the real server gives those of an ensemble in no order of their own."""
    return {o["name"]: o for o in document["outputs"]}


def test_both_servers_answer_alike(toy, tmp_path, real):
    toy.write(
        "label.py",
        """
        import numpy as np

        def run(inputs):
            if (inputs["ids"] == 6).any():
                raise ValueError("six letters")
            total = inputs["ids"].sum(axis=1)
            labels = np.array([["long \\u65e5" if t > 10 else "short"] for t in total], dtype=object)
            return {"label": labels, "share": (total / 10).astype(np.float32)[:, None]}
        """,
    )
    toy.steps[1]["python"]["outputs"].append({"name": "share", "dtype": "FP32", "dims": [1]})
    toy.samples(TEXT=TEXTS[:3])
    toy.recipe["target"] = {"triton": "24.10"}
    toy.built()
    toy.write("label.py", (toy.home / "label.py").read_text().replace("> 10", "> 11"))
    toy.built()
    assert toy.versions() == {"toy": [1, 2], "toy_label": [1, 2], "toy_split": [1]}
    requests = [
        *(request("toy", [t]) for t in TEXTS),
        request("toy", TEXTS[:4]),
        request("toy", ["a"] * 5),
        request("toy", ["a", "b"], [1, 2]),
        request("toy_split", TEXTS[:4]),
    ]
    found = {}
    for kind in ("real", "ours"):
        copy = tmp_path / kind
        shutil.copytree(toy.repository, copy)
        found[kind] = answers(kind, copy, requests)
    for ours, theirs in zip(found["ours"], found["real"], strict=True):
        assert ours[0] == theirs[0], (ours, theirs)
        if ours[0] == 200:
            assert by_name(ours[1]) == by_name(theirs[1])
    assert [status for status, _ in found["real"]] == [200, 200, 200, 200, 500, 200, 400, 400, 200]
    message = found["real"][4][1]["error"]
    assert "step label: ValueError: six letters (label.py:" in message
    assert "step label: ValueError: six letters (label.py:" in found["ours"][4][1]["error"]
    together = by_name(found["real"][5][1])
    assert together["label"]["data"][:2] == ["long \u65e5", "short"]
    assert np.allclose(together["share"]["data"][0], 1.6)
