"""Every architecture of the zoo, converted by the command line and served, answers as its module does."""

from __future__ import annotations

import pytest

from tests.zoo.asking import deviation
from tests.zoo.catalog import CATALOG
from tests.zoo.project import MAX_BATCH_SIZE
from tests.zoo.whole import served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    # torch.nn.TransformerEncoder itself uses them where padding is masked.
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage"),
]

BUILT = [a for a in CATALOG if not a.refusal]
REFUSED = [a for a in CATALOG if a.refusal]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    with served(CATALOG, tmp_path_factory.mktemp("zoo")) as found:
        yield found


@pytest.fixture(scope="module")
def client(zoo):
    from tritonclient.http import InferenceServerClient

    with InferenceServerClient(zoo.address, connection_timeout=60, network_timeout=60) as found:
        yield found


@pytest.mark.parametrize("architecture", BUILT, ids=lambda a: a.name)
def test_the_served_model_answers_as_the_module_does(architecture, zoo, client):
    conversion = zoo.conversions[architecture.name]
    assert conversion.status == 0, conversion.told
    config = client.get_model_config(architecture.name)
    assert config["max_batch_size"] == (MAX_BATCH_SIZE if architecture.batched else 0), conversion.told
    assert [item["name"] for item in config["input"]] == list(architecture.inputs)
    assert [item["name"] for item in config["output"]] == list(architecture.outputs)
    found = deviation(client, architecture)
    assert found.requests == len(architecture.settings())


@pytest.mark.parametrize("architecture", REFUSED, ids=lambda a: a.name)
def test_what_cannot_be_converted_is_refused(architecture, zoo):
    conversion = zoo.conversions[architecture.name]
    assert conversion.status != 0
    assert conversion.document["error"]["code"] == architecture.refusal
    assert "Traceback" not in conversion.told
    assert not list(conversion.repository.rglob("*.onnx"))
