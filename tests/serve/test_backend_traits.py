"""What a backend says of itself, beside running models."""

from __future__ import annotations

import pytest

from repobuild_serve.backends import table
from repobuild_serve.backends.model_backend import Threaded
from repobuild_serve.core.ticket import Tensor
from repobuild_serve.datatypes import BY_WIRE_NAME
from repobuild_serve.errors import RequestError
from repobuild_serve.wire.checking import check_inputs

STRINGS = (
    'max_batch_size: 8\ninput [{ name: "IN" data_type: TYPE_STRING dims: [ 1 ] }]\n'
    'output [{ name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }]\n'
)
NO_TEXT = Tensor("IN", BY_WIRE_NAME["BYTES"], (1, 1), b"\x01\x00\x00\x00\xff")


class Own:
    """A backend of somebody else's."""

    platform = ""
    default_filename = "model.own"
    default_count = 1

    def complete(self, config, path):
        pass

    def open(self, settings, path, instance_name):
        return self

    def close(self):
        pass


@pytest.fixture
def own(monkeypatch, repository):
    """Registers an ``Own`` with these attributes, and a model of it called ``m``."""

    def register(extra="", **attributes):
        backend = Threaded(type("Made", (Own,), attributes)())
        monkeypatch.setattr("repobuild_serve.repository.backend_named", lambda name: backend)
        folder = repository.config("m", 'backend: "own"\n' + STRINGS + extra)
        (folder / "1").mkdir()
        (folder / "1" / "model.own").touch()

    return register


@pytest.mark.parametrize("attributes", [{"text_only": True}, {"text_only": False}, {}], ids=str)
def test_a_backend_says_itself_whether_it_takes_text_only(own, load, attributes):
    own(**attributes)
    models, problems = load()
    assert problems == []
    plan = models.find("m", "").plan
    if attributes.get("text_only"):
        with pytest.raises(RequestError, match="input 'IN' holds a string that is not UTF-8"):
            check_inputs(plan, [NO_TEXT])
    else:
        check_inputs(plan, [NO_TEXT])


@pytest.mark.parametrize(("name", "text_only"), [("onnxruntime", True), ("pytorch", True), ("python", False)])
def test_the_libraries_of_some_backends_take_text_only(name, text_only):
    assert getattr(table.backend_named(name), "text_only", False) == text_only
