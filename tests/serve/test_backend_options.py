"""Settings of whole backends: ``--backend-config``."""

from __future__ import annotations

import logging

import pytest
from onnx import TensorProto, helper

from repobuild_serve.backends.model_backend import Threaded
from repobuild_serve.backends.options import configure_backends, read_backend_options
from repobuild_serve.backends.python.backend import PythonBackend
from repobuild_serve.errors import StartError


def test_values_are_sorted_by_backend():
    given = ("onnxruntime,a=1", "b=2", "python,c=d=e,f", "onnxruntime,a=3", "g=h,i=j", ",k=4")
    assert read_backend_options(given) == {
        "onnxruntime": {"a": "3"},
        "": {"b": "2", "g": "h,i=j", "k": "4"},
        "python": {"c": "d=e,f"},
    }


@pytest.mark.parametrize(
    "text", ["", "onnxruntime", "onnxruntime,", "onnxruntime,a", "onnxruntime,a=", "=1", ",=1", "x,=1"]
)
def test_another_form_is_refused(text):
    with pytest.raises(StartError) as caught:
        read_backend_options([text])
    assert caught.value.text == (
        f"--backend-config has the form '<backend name>,<setting>=<value>'. Got {text}"
    )
    assert caught.value.exit_code == 2


def test_settings_of_a_backend_that_is_not_there_are_told(caplog):
    with caplog.at_level(logging.WARNING):
        configure_backends({"tensorflow": {"version": "2"}})
    assert "there is no backend 'tensorflow' here; its settings have no effect" in caplog.text


def test_an_unknown_setting_of_every_backend():
    with pytest.raises(StartError, match="there is no setting 'batch' of every backend"):
        configure_backends({"": {"batch": "2"}})


@pytest.mark.parametrize("backend", ["onnxruntime", "python", "pytorch"])
def test_an_unknown_setting_of_a_backend(backend):
    with pytest.raises(StartError, match="has no setting 'zz'"):
        configure_backends({backend: {"zz": "1"}})


@pytest.mark.parametrize("text", ["0", "-1", "soon", "1.5"])
def test_a_wrong_time_limit_of_the_python_backend(text):
    with pytest.raises(StartError, match="stub-timeout-seconds must be a positive integer"):
        PythonBackend().configure({"stub-timeout-seconds": text}, {})


def test_shared_memory_of_the_python_backend_is_told_to_have_no_effect(caplog):
    with caplog.at_level(logging.WARNING):
        PythonBackend().configure({"shm-default-byte-size": "1024", "stub-timeout-seconds": "9"}, {})
    assert "shm-default-byte-size has no effect" in caplog.text


def test_a_backend_from_elsewhere_is_given_its_settings():
    class Plain:
        platform = default_filename = ""
        default_count = 1

    class Configured(Plain):
        def configure(self, own, shared):
            self.got = own, shared

        def uses_gpus(self):
            return True

    backend = Configured()
    made = Threaded(backend)
    made.configure({"a": "1"}, {"b": "2"})
    assert backend.got == ({"a": "1"}, {"b": "2"})
    assert made.uses_gpus()
    plain = Threaded(Plain())
    plain.configure({}, {"b": "2"})
    assert not plain.uses_gpus()
    with pytest.raises(StartError, match="has no setting 'a', nor any other"):
        plain.configure({"a": "1"}, {})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), 4),
        (("onnxruntime,default-max-batch-size=16",), 16),
        (("default-max-batch-size=8",), 8),
        (("default-max-batch-size=8", "onnxruntime,default-max-batch-size=16"), 16),
    ],
)
def test_the_server_takes_them(started, repository, options, expected):
    repository.onnx(
        "m",
        helper.make_model(
            helper.make_graph(
                [helper.make_node("Identity", ["IN"], ["OUT"])],
                "g",
                [helper.make_tensor_value_info("IN", TensorProto.FLOAT, ["batch", 2])],
                [helper.make_tensor_value_info("OUT", TensorProto.FLOAT, ["batch", 2])],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        ),
    )
    server = started(repository, *(f"--backend-config={option}" for option in options))
    assert server.ask("GET", "/v2/models/m/config").json["max_batch_size"] == expected


def test_a_wrong_one_ends_the_start(launch, repository):
    repository.identity("m")
    server = launch(repository.path, "--backend-config=onnxruntime,threads=2")
    assert server.process.wait(30) == 2
    text = server.log.read_text()
    assert "error[backend-config-invalid]: the onnxruntime backend has no setting 'threads'" in text
    assert "Traceback" not in text
