"""The rules of the soak can be broken: wrong answers, versions and refusals without a reason are seen."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from tests.soak.actors.observer import check_identities
from tests.soak.asking import Asker, Question, check
from tests.soak.leaks import Holdings, grown
from tests.soak.ledger import Wrong
from tests.soak.models import MODELS
from tests.soak.truth import Life, Span, now
from tests.soak.wire import Reply

SCALE = next(model for model in MODELS if model.name == "scale")
NARROW = next(model for model in MODELS if model.name == "narrow")


def question(model=SCALE, version=0):
    return Question(model, "me-1", version, np.array([[1, 2]], np.float32), b"", now())


def answer(**changes):
    document = {
        "id": "me-1",
        "model_name": "scale",
        "model_version": "3",
        "outputs": [{"name": "OUT", "datatype": "FP32", "shape": [1, 2], "data": [3.0, 6.0]}],
    }
    return Reply(200, {}, json.dumps({**document, **changes}).encode())


def refusal(status, text):
    return Reply(status, {}, json.dumps({"error": text}).encode())


def outputs(shape, data):
    return [{"name": "OUT", "datatype": "FP32", "shape": shape, "data": data}]


@pytest.fixture
def lives():
    start = now()
    life = Life({2: Span(start - 20, start - 10), 3: Span(start - 10)}, current=3)
    return {"scale": life, "narrow": Life({1: Span(0)})}


def test_a_right_answer_is_right(lives):
    assert check(question(), answer(), lives) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "me-2"},
        {"model_name": "large"},
        {"model_version": "2", "outputs": outputs([1, 2], [2.0, 4.0])},
        {"model_version": "4", "outputs": outputs([1, 2], [4.0, 8.0])},
        {"outputs": outputs([1, 2], [3.0, 6.5])},
        {"outputs": outputs([2, 1], [3.0, 6.0])},
    ],
    ids=["id", "model", "old version", "version that never was", "value", "shape"],
)
def test_a_wrong_answer_is_seen(lives, changes):
    with pytest.raises(Wrong):
        check(question(), answer(**changes), lives)


def test_another_version_than_asked_is_seen(lives):
    lives["scale"].versions[4] = Span(0)
    with pytest.raises(Wrong):
        check(question(version=4), answer(), lives)


UNLOADED = refusal(404, "Request for unknown model: 'scale' has no available versions")


def test_a_refusal_needs_its_reason_at_its_time(lives):
    with pytest.raises(Wrong, match="without an allowed reason"):
        check(question(), UNLOADED, lives)
    lives["scale"].absences.append(Span(now() - 5, now() - 4))
    with pytest.raises(Wrong, match="without an allowed reason"):
        check(question(), UNLOADED, lives)
    lives["scale"].absences.append(Span(now() - 1))
    assert check(question(), UNLOADED, lives) == "unloaded"


def test_a_refusal_needs_the_queue_that_gives_it(lives):
    full = refusal(503, "[request id: me-1] Exceeds maximum queue size")
    assert check(question(NARROW), full, lives) == "queue full"
    with pytest.raises(Wrong, match="without an allowed reason"):
        check(question(), full, lives)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"error":""}', b"oops"])
def test_a_refusal_must_say_why(lives, body):
    with pytest.raises(Wrong):
        check(question(NARROW), Reply(503, {}, body), lives)


def test_growth_beyond_a_limit_is_a_leak():
    before = Holdings(100, 50, 20, 10, 30, 5, 0, 1)
    assert grown(before, replace(before, rss_mib=120)) == []
    assert len(grown(before, replace(before, children=6))) == 1
    assert len(grown(before, replace(before, rss_mib=300, fds=40, temporary=2))) == 3


def test_counters_that_contradict_one_another_are_seen():
    stats = {"success": {"count": 2, "ns": 5}, "fail": {"count": 0, "ns": 0}}
    batches = [{"batch_size": 2, "compute_infer": {"count": 2, "ns": 4}}]
    entry = {"name": "m", "version": "1", "inference_count": 4, "execution_count": 2}
    whole = {**entry, "inference_stats": stats, "batch_stats": batches}
    check_identities(whole, damaged=False)
    for change in ({"inference_count": 3}, {"execution_count": 3}):
        with pytest.raises(Wrong):
            check_identities({**whole, **change}, damaged=False)
    check_identities({**whole, "inference_count": 2}, damaged=True)


def test_requests_come_from_the_seed_alone():
    first, second = (Asker(random.Random(5), "a") for _ in range(2))
    for model in (SCALE, NARROW):
        assert first.question(model).data == second.question(model).data
