"""What a backend says of itself, beside running models."""

from __future__ import annotations

import logging

import pytest

from repobuild_serve.backends import table
from repobuild_serve.backends.model_backend import Threaded
from repobuild_serve.core.ticket import Tensor
from repobuild_serve.datatypes import BY_WIRE_NAME
from repobuild_serve.errors import RequestError
from repobuild_serve.lifecycle.loading import resolved_settings
from repobuild_serve.repository import read_model
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


ACCELERATED = (
    "optimization { graph { level: 1 } execution_accelerators { cpu_execution_accelerator "
    '[ { name: "openvino" } ] } }\n'
)


def warned(caplog):
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and "has no effect" in record.getMessage()
    ]


@pytest.mark.parametrize("name", ["python", "pytorch"])
def test_accelerators_and_levels_are_warned_of_where_nothing_uses_them(repository, caplog, name):
    folder = repository.config("m", f'backend: "{name}"\n{STRINGS}{ACCELERATED}')
    (folder / "1").mkdir()
    resolved_settings(read_model(folder, auto_complete=False))
    assert warned(caplog) == [
        f"model m: the field '{path}' of its configuration has no effect on models of backend '{name}'"
        for path in ("optimization.graph.level", "optimization.execution_accelerators")
    ]


def test_what_a_backend_uses_is_not_warned_of(load, repository, caplog):
    repository.identity("m", extra="optimization { graph { level: 1 } }\n")
    assert load()[1] == []
    assert warned(caplog) == []


@pytest.mark.parametrize(
    "attributes", [{}, {"without_effect": ("optimization.execution_accelerators",)}], ids=str
)
def test_a_backend_says_itself_what_it_has_no_use_for(own, load, caplog, attributes):
    own(ACCELERATED, **attributes)
    assert load()[1] == []
    assert len(warned(caplog)) == len(attributes)


@pytest.mark.parametrize(
    ("extra", "path"),
    [
        ('runtime: "other.so"', "runtime"),
        ("optimization { priority: PRIORITY_MAX }", "optimization.priority"),
        ("optimization { cuda { graphs: true } }", "optimization.cuda"),
        ("optimization { gather_kernel_buffer_threshold: 8 }", "optimization.gather_kernel_buffer_threshold"),
        ("optimization { eager_batching: true }", "optimization.eager_batching"),
        (
            "instance_group [ { count: 1 }, { count: 1 rate_limiter { priority: 2 } } ]",
            "instance_group.rate_limiter",
        ),
        ('instance_group { host_policy: "cpu" }', "instance_group.host_policy"),
        (
            """model_metrics { metric_control {
                metric_identifier { family: "f" } histogram_options { buckets: [ 1 ] } } }""",
            "model_metrics",
        ),
    ],
)
def test_fields_that_nothing_looks_at_are_warned_of(own, load, caplog, extra, path):
    own(extra)
    assert load()[1] == []
    assert warned(caplog) == [f"model m: the field '{path}' of its configuration has no effect"]


@pytest.mark.parametrize(
    "extra",
    [
        "",
        "optimization { }",
        "optimization { graph { level: 0 } priority: PRIORITY_DEFAULT }",
        "optimization { input_pinned_memory { enable: true } }",
        "instance_group { }",
    ],
)
def test_fields_that_are_as_if_unset_are_not(own, load, caplog, extra):
    own(extra)
    assert load()[1] == []
    assert warned(caplog) == []


def test_files_of_an_ensemble_are_warned_of(load, repository, caplog):
    repository.identity("part", dims=(1,))
    tensors = "".join(
        f'{role} {{ name: "{name}" data_type: TYPE_FP32 dims: [ 1 ] }}\n'
        for role, name in (("input", "IN"), ("output", "OUT"))
    )
    maps = "".join(
        f'{role}_map {{ key: "{name}" value: "{name}" }} '
        for role, name in (("input", "IN"), ("output", "OUT"))
    )
    step = f'step [ {{ model_name: "part" model_version: -1 {maps} }} ]'
    text = f'platform: "ensemble"\nmax_batch_size: 8\n{tensors}ensemble_scheduling {{ {step} }}\n'
    (repository.config("ens", text + 'default_model_filename: "x"\n') / "1").mkdir()
    assert load()[1] == []
    assert warned(caplog) == [
        "model ens: the field 'default_model_filename' of its configuration has no effect"
    ]


def test_inputs_of_a_warm_up_that_the_model_has_not_are_warned_of(load, repository, caplog):
    value = "value { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true }"
    inputs = "".join(f'inputs {{ key: "{name}" {value} }} ' for name in ("IN", "NONE"))
    repository.identity("m", extra=f'model_warmup [{{ name: "w" batch_size: 1 {inputs} }}]')
    assert load()[1] == []
    assert "input 'NONE' of warm-up sample 'w' is left out: the model has none of that name" in caplog.text
