"""The pytorch backend: TorchScript, exported programs, and what is refused."""

from __future__ import annotations

import importlib
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
import warnings
import zipfile

import numpy as np
import pytest
import torch

from repobuild_serve.backends.pytorch import PyTorchBackend
from repobuild_serve.backends.pytorch_names import script_positions
from repobuild_serve.config.complete import complete_config
from repobuild_serve.config.parse import parse_text
from repobuild_serve.config.settings import settings_from
from repobuild_serve.errors import Code, LoadError, RequestError
from repobuild_serve.messages import model_config_class

WIRES = ("BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64")
SAMPLES = {
    "BOOL": np.array([[True, False], [False, True]]),
    "FP16": np.array([[0.5, -2], [65504, 0]], dtype=np.float16),
}


class Identity(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Two(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return left - right, left + right


class Named(torch.nn.Module):
    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return inputs["a"] - inputs["b"]


class Shout(torch.nn.Module):
    def forward(self, words: list[str], scale: torch.Tensor) -> tuple[list[str], torch.Tensor]:
        return [word.upper() for word in words], scale * 2


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.t()


class InPlace(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)


class Odd(torch.nn.Module):
    """Gives outputs of the wrong kind by the first number of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x[0, 0] == 1):
            return x.double()
        if bool(x[0, 0] == 2):
            return x.sum()
        if bool(x[0, 0] == 3):
            raise ValueError("the model met 3")
        return x


class Tensors(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x, x]


class Tree(torch.nn.Module):
    def forward(self, x, options, *, y):
        return {"sum": x + y, "rest": (options["k"] * 2, x - y)}


class Mode(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1) if self.training else x


def scripted(module, path, *, training=False):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(module.train(training)).save(str(path))


def exported(module, path, args, kwargs=None, dynamic=True):
    batch = torch.export.Dim("batch", min=1, max=64)

    def shape(value):
        return {key: shape(item) for key, item in value.items()} if isinstance(value, dict) else {0: batch}

    shapes = None
    if dynamic:
        names = ["x", "options"][: len(args)]
        shapes = {name: shape(value) for name, value in zip(names, args, strict=True)}
        shapes |= {name: shape(value) for name, value in (kwargs or {}).items()}
    torch.export.save(torch.export.export(module, args, kwargs, dynamic_shapes=shapes), path)


def settings_of(inputs, outputs, folder, *, batch=8, extra="", platform="pytorch_libtorch"):
    def section(role, items):
        return "".join(
            f'{role} {{ name: "{name}" data_type: TYPE_{kind} dims: {list(dims)} {more} }}\n'
            for name, kind, dims, more in ((*item, "")[:4] for item in items)
        )

    text = (
        f'name: "m"\nbackend: "pytorch"\nplatform: "{platform}"\nmax_batch_size: {batch}\n'
        f"{section('input', inputs)}{section('output', outputs)}{extra}"
    )
    config = parse_text(text, folder / "config.pbtxt", model_config_class()())
    complete_config(config, 1)
    return settings_from(config, folder)


def parameter(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


@pytest.fixture
def open_model(tmp_path):
    """Opens an instance: ``open_model(module, inputs, outputs, ...)``."""
    opened = []
    backend = PyTorchBackend()

    def run(module, inputs, outputs, *, name="m_0", backend=backend, **more):
        path = tmp_path / "model.pt"
        if module is not None:
            scripted(module, path)
        settings = settings_of(inputs, outputs, tmp_path, **more)
        opened.append(backend.open(settings, path, name))
        return opened[-1]

    yield run
    for instance in opened:
        instance.close()


def refusal(call, *args, **more):
    with pytest.raises(LoadError) as caught:
        call(*args, **more)
    return caught.value.text


def sample(wire):
    if wire in SAMPLES:
        return SAMPLES[wire]
    dtype = np.dtype({"U": "uint", "I": "int", "F": "float"}[wire[0]] + wire.lstrip("UINTFP"))
    return np.array([[1, 2], [3, 100]], dtype=dtype)


@pytest.mark.parametrize("wire", WIRES)
def test_every_datatype_both_ways(open_model, wire):
    data = sample(wire)
    data.flags.writeable = False
    instance = open_model(Identity(), [("INPUT__0", wire, [2])], [("OUTPUT__0", wire, [2])])
    (result,) = instance.run({"INPUT__0": data})
    assert result.dtype == data.dtype
    assert result.tolist() == data.tolist()


def test_strings_are_lists_of_text(open_model):
    instance = open_model(
        Shout(),
        [("words", "STRING", [-1]), ("scale", "FP32", [-1])],
        [("OUTPUT__0", "STRING", [-1]), ("OUTPUT__1", "FP32", [-1])],
        batch=0,
    )
    words = np.array([b"one", "zw\N{LATIN SMALL LETTER O WITH DIAERESIS}lf".encode()], dtype=object)
    texts, scaled = instance.run({"words": words, "scale": np.array([3], dtype=np.float32)})
    assert texts.tolist() == ["ONE", "ZW\N{LATIN SMALL LETTER O WITH DIAERESIS}LF"]
    assert scaled.tolist() == [6]
    with pytest.raises(RequestError, match="input 'words' holds a string that is not UTF-8") as caught:
        instance.run({"words": np.array([b"\xff"], dtype=object), "scale": np.zeros(1, dtype=np.float32)})
    assert caught.value.code is Code.INVALID_ARG


def test_strings_have_one_dim(open_model):
    outputs = [("OUTPUT__0", "STRING", [1]), ("OUTPUT__1", "FP32", [1])]
    inputs = [("words", "STRING", [1]), ("scale", "FP32", [1])]
    assert refusal(open_model, Shout(), inputs, outputs) == (
        "Triton only supports 1 dimensional List of String as input for 'words' for model 'm'"
    )
    scalars = "reshape { shape: [ ] }"
    instance = open_model(
        Shout(), [("words", "STRING", [1], scalars), inputs[1]], [(*outputs[0], scalars), outputs[1]]
    )
    texts, _ = instance.run(
        {"words": np.array([b"a", b"b"], dtype=object), "scale": np.zeros((2, 1), dtype=np.float32)}
    )
    assert texts.tolist() == ["A", "B"]


@pytest.mark.parametrize("wire", ["UINT16", "UINT32", "UINT64", "BF16"])
@pytest.mark.parametrize("role", ["input", "output"])
def test_datatypes_that_triton_s_backend_lacks(open_model, wire, role):
    types = ("FP32", wire) if role == "output" else (wire, "FP32")
    name = f"{role.upper()}__0"
    assert (
        refusal(open_model, Identity(), [("INPUT__0", types[0], [2])], [("OUTPUT__0", types[1], [2])])
        == f"unsupported datatype TYPE_{wire} for {role} '{name}' for model 'm'"
    )


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (("left", "right"), ("OUTPUT__0", "OUTPUT__1")),
        (("right", "left"), ("OUTPUT__1", "OUTPUT__0")),
        (("INPUT__0", "INPUT__1"), ("difference__0", "sum__1")),
        (("INPUT__1", "INPUT__0"), ("OUTPUT__0", "OUTPUT__1")),
        (("A", "B"), ("DIFFERENCE", "SUM")),
    ],
    ids=["arguments", "arguments-turned", "indexed", "indexed-turned", "in-order"],
)
def test_names_of_inputs_and_outputs(open_model, inputs, outputs):
    instance = open_model(
        Two(), [(name, "FP32", [1]) for name in inputs], [(name, "FP32", [1]) for name in outputs]
    )
    values = {name: np.array([[value]], dtype=np.float32) for name, value in zip(inputs, (5, 3), strict=True)}
    first = 5 if inputs[0] in {"left", "INPUT__0", "A"} else 3
    expected = {"difference": first - (8 - first), "sum": 8}
    got = dict(zip(outputs, (array.item() for array in instance.run(values)), strict=True))
    turned = {name: ("sum" if "1" in name or name == "SUM" else "difference") for name in outputs}
    assert got == {name: expected[which] for name, which in turned.items()}


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (("a__1", "b__0"), [1, 0]),
        (("a__b__1", "b__0"), [0, 1]),
        (("a___1", "b__0"), [0, 1]),
        (("a__1", "b__"), [1, 0]),
        (("__1", "__0"), [1, 0]),
        (("a__01", "b__00"), [1, 0]),
        (("a__+1", "b__0"), [0, 1]),
        (("a__\u0661", "b__0"), [0, 1]),
        (("left", "INPUT__0"), [0, 1]),
    ],
    ids=str,
)
def test_the_index_is_all_behind_the_first_two_underscores(names, places):
    """As in pytorch_backend's GetNamingConvention, r24.01 to r26.05."""
    assert script_positions("m", "input", names, ("left", "right")) == places
    assert script_positions("m", "output", names, ()) == places


def test_names_that_are_taken_in_order_are_warned_of(open_model, caplog):
    with caplog.at_level(logging.WARNING):
        open_model(Identity(), [("A", "FP32", [1])], [("B", "FP32", [1])])
    assert [record.getMessage().partition(" and ")[0] for record in caplog.records] == [
        "model m: its inputs A are neither arguments of forward nor all of the form <name>__<index>,",
        "model m: its outputs B are neither arguments of forward nor all of the form <name>__<index>,",
    ]


def test_a_dict_of_tensors(open_model):
    instance = open_model(Named(), [("b", "FP32", [1]), ("a", "FP32", [1])], [("OUTPUT__0", "FP32", [1])])
    (result,) = instance.run({"b": np.ones((1, 1), np.float32), "a": np.full((1, 1), 5, np.float32)})
    assert result.item() == 4


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([("left", "FP32", [1])], "configuration expects 1 inputs, model provides 2"),
        (
            [("INPUT__0", "FP32", [1]), ("X__0", "FP32", [1])],
            "two inputs of the configuration are for the same",
        ),
        ([("INPUT__0", "FP32", [1]), ("INPUT__2", "FP32", [1])], "input 'INPUT__2' refers to an argument"),
    ],
    ids=["count", "twice", "beyond"],
)
def test_inputs_that_do_not_fit(open_model, inputs, text):
    assert text in refusal(open_model, Two(), inputs, [("OUTPUT__0", "FP32", [1])])


OPTIONAL_TEXT = (
    "'optional' is set to true for input 'b' while the backend model doesn't support optional input"
)


def test_optional_inputs_are_refused_as_by_triton(open_model):
    inputs = [("a", "FP32", [2]), ("b", "FP32", [2], "optional: true")]
    text = refusal(open_model, Named(), inputs, [("y", "FP32", [2])])
    assert text == OPTIONAL_TEXT


def test_a_server_tells_of_the_optional_input_at_load(load, repository):
    folder = repository.config(
        "m",
        'backend: "pytorch"\nmax_batch_size: 8\n'
        'input [{ name: "a" data_type: TYPE_FP32 dims: [ 2 ] }, '
        '{ name: "b" data_type: TYPE_FP32 dims: [ 2 ] optional: true }]\n'
        'output [{ name: "y" data_type: TYPE_FP32 dims: [ 2 ] }]\n',
    )
    (folder / "1").mkdir()
    scripted(Named(), folder / "1" / "model.pt")
    models, problems = load()
    assert problems == [f"m, version 1: Invalid argument: {OPTIONAL_TEXT}"]
    assert models.versions("m") == []


def test_an_output_index_that_the_model_does_not_have(open_model):
    instance = open_model(Identity(), [("INPUT__0", "FP32", [1])], [("OUTPUT__3", "FP32", [1])])
    with pytest.raises(RequestError) as caught:
        instance.run({"INPUT__0": np.zeros((1, 1), np.float32)})
    assert caught.value.text == (
        "The output OUTPUT__3 in the model configuration refers to an output index which doesn't exist. "
        "This model has 1 outputs"
    )


@pytest.mark.parametrize(
    ("value", "text", "code"),
    [
        (
            1,
            "configuration expects datatype TYPE_FP32 for output 'OUT__0', model provides TYPE_FP64",
            "INVALID_ARG",
        ),
        (2, "output 'OUT__0' is a scalar which is not supported.", "INVALID_ARG"),
        (3, "the model met 3", "INTERNAL"),
    ],
    ids=["dtype", "scalar", "raises"],
)
def test_a_run_that_fails_does_not_harm_the_next(open_model, value, text, code):
    instance = open_model(Odd(), [("IN__0", "FP32", [1])], [("OUT__0", "FP32", [1])])
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            instance.run({"IN__0": np.full((1, 1), value, np.float32)})
        assert text in caught.value.text
        assert caught.value.code is Code[code]
        assert instance.run({"IN__0": np.full((1, 1), 7, np.float32)})[0].item() == 7
    if code == "INTERNAL":
        assert caught.value.text.startswith("PyTorch execute failure: ")


def test_a_list_of_tensors_is_no_output(open_model):
    instance = open_model(Tensors(), [("IN__0", "FP32", [1])], [("OUT__0", "FP32", [1])])
    with pytest.raises(RequestError, match=r"output must be of type Tensor or List\[str\]"):
        instance.run({"IN__0": np.zeros((1, 1), np.float32)})


def test_a_model_that_writes_into_its_input_leaves_read_only_data_alone(open_model):
    instance = open_model(InPlace(), [("IN__0", "FP32", [1])], [("OUT__0", "FP32", [1])])
    data = np.frombuffer(np.float32(3).tobytes(), np.float32).reshape(1, 1)
    assert instance.run({"IN__0": data})[0].item() == 6
    assert data.item() == 3


@pytest.mark.parametrize("training", [True, False])
def test_a_model_runs_in_the_mode_it_was_saved_in(open_model, tmp_path, caplog, training):
    scripted(Mode(), tmp_path / "model.pt", training=training)
    with caplog.at_level(logging.WARNING):
        instance = open_model(None, [("x", "FP32", [1])], [("OUT__0", "FP32", [1])])
    assert instance.run({"x": np.zeros((1, 1), np.float32)})[0].item() == training
    assert ("was saved in training mode" in caplog.text) is training


def test_empty_batches_run(open_model):
    instance = open_model(Linear(), [("x", "FP32", [2])], [("OUT__0", "FP32", [3])])
    assert instance.run({"x": np.zeros((0, 2), np.float32)})[0].shape == (0, 3)


@pytest.mark.parametrize("write", ["torch", "legacy", "pickle", "state"])
def test_a_pickle_is_refused_without_loading_it(open_model, tmp_path, write):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    path = tmp_path / "model.pt"
    if write == "pickle":
        path.write_bytes(pickle.dumps(Trap()))
    elif write == "state":
        torch.save(Linear().state_dict(), path)
    else:
        torch.save(Trap(), path, _use_new_zipfile_serialization=write == "torch")
    text = refusal(open_model, None, [("x", "FP32", [2])], [("OUT__0", "FP32", [3])])
    assert "is a pickle as torch.save writes it" in text
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "data", [b"", b"nothing of the kind", b"PK\x03\x04 torn"], ids=["empty", "text", "torn"]
)
def test_a_file_that_is_no_model(open_model, tmp_path, data):
    (tmp_path / "model.pt").write_bytes(data)
    text = refusal(open_model, None, [("x", "FP32", [2])], [("OUT__0", "FP32", [3])])
    assert "is neither TorchScript nor a PT2 archive" in text


def test_a_folder_is_no_model(open_model, tmp_path):
    (tmp_path / "model.pt").mkdir()
    text = refusal(open_model, None, [("x", "FP32", [2])], [("OUT__0", "FP32", [3])])
    assert text.endswith("model.pt' cannot be read: Is a directory")


def test_a_torn_torchscript_file(open_model, tmp_path):
    path = tmp_path / "model.pt"
    scripted(Linear(), path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data[: len(data) // 2] if name.endswith("data.pkl") else data)
    assert refusal(open_model, None, [("x", "FP32", [2])], [("OUT__0", "FP32", [3])]).startswith(
        "failed to load model 'm': "
    )


@pytest.fixture
def open_exported(tmp_path):
    opened = []
    path = tmp_path / "model.pt2"

    def run(inputs, outputs, **more):
        settings = settings_of(inputs, outputs, tmp_path, **{"platform": "torch_aoti", **more})
        opened.append(PyTorchBackend().open(settings, path, "m_0"))
        return opened[-1]

    run.path = path
    yield run
    for instance in opened:
        instance.close()


def rows(value, count=2):
    return np.full((count, 1), value, dtype=np.float32)


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (
            ("ARGS[0]", "ARGS[1][k]", "KWARGS[y]"),
            ("RESULT[sum]", "RESULT[rest][0]", "RESULT[rest][1]"),
        ),
        (("INPUT__0", "INPUT__1", "INPUT__2"), ("OUTPUT__0", "OUTPUT__1", "OUTPUT__2")),
        (("x", "options_k", "y"), ("OUTPUT__0", "RESULT[rest][0]", "OUTPUT__2")),
    ],
    ids=["paths", "numbers", "arguments"],
)
def test_an_exported_program_and_its_names(open_exported, inputs, outputs):
    exported(
        Tree(), open_exported.path, (torch.zeros(3, 1), {"k": torch.zeros(3, 1)}), {"y": torch.zeros(3, 1)}
    )
    instance = open_exported(
        [(name, "FP32", [1]) for name in reversed(inputs)], [(name, "FP32", [1]) for name in outputs]
    )
    values = dict(zip(inputs, (rows(5), rows(10), rows(3)), strict=True))
    assert [array[:, 0].tolist() for array in instance.run(values)] == [[8, 8], [20, 20], [2, 2]]
    assert instance.run({name: rows(1, 7) for name in inputs})[0].shape == (7, 1)


@pytest.mark.parametrize(
    ("inputs", "outputs", "more", "text"),
    [
        (
            [("x", "FP64", [2])],
            None,
            {},
            "configuration expects datatype TYPE_FP64 for input 'x', model provides",
        ),
        ([("x", "FP32", [3])], None, {}, "input 'x' has shape [-1,2] in the exported program but [-1,3]"),
        ([("z", "FP32", [2])], None, {}, "input 'z' is not found in the model, whose inputs are ARGS[0]"),
        (None, [("RESULT[a]", "FP32", [3])], {}, "output 'RESULT[a]' is not found"),
        (None, [("RESULT", "FP32", [4])], {}, "output 'RESULT' has shape [-1,3]"),
        (None, None, {"batch": 0}, "input 'x' has shape [-1,2] in the exported program but [2]"),
        (None, None, {"platform": "pytorch_libtorch"}, "whose platform is 'torch_aoti'"),
    ],
    ids=["dtype", "dims", "input-name", "output-name", "output-dims", "batch", "platform"],
)
def test_an_exported_program_that_does_not_fit(open_exported, inputs, outputs, more, text):
    exported(Linear(), open_exported.path, (torch.zeros(3, 2),))
    given = (inputs or [("x", "FP32", [2])], outputs or [("RESULT", "FP32", [3])])
    assert text in refusal(open_exported, *given, **more)


def test_an_exported_program_has_no_optional_inputs(open_exported):
    inputs = [("ARGS[0]", "FP32", [2]), ("b", "FP32", [2], "optional: true")]
    assert refusal(open_exported, inputs, [("y", "FP32", [2])]) == OPTIONAL_TEXT


def test_an_exported_program_of_one_batch_size_does_not_batch(open_exported):
    exported(Linear(), open_exported.path, (torch.zeros(3, 2),), dynamic=False)
    text = refusal(open_exported, [("x", "FP32", [2])], [("RESULT", "FP32", [3])])
    assert text.endswith("export it with dynamic_shapes for the dims that vary")


@pytest.mark.parametrize("member", ["weights", "constants", "sample_inputs", "legacy"])
def test_a_pickle_in_an_archive_is_refused_without_loading_it(open_exported, tmp_path, member):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    exported(Linear(), open_exported.path, (torch.zeros(3, 2),))
    with zipfile.ZipFile(open_exported.path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    root = next(iter(members)).partition("/")[0]
    if member == "weights":
        key = f"{root}/data/weights/model_weights_config.json"
        config = json.loads(members[key])
        for payload in config["config"].values():
            payload["use_pickle"] = True
        members[key] = json.dumps(config).encode()
        members[f"{root}/data/weights/weight_0"] = pickle.dumps(Trap())
    elif member == "constants":
        key = f"{root}/data/constants/model_constants_config.json"
        payload = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": False, "tensor_meta": None}
        members[key] = json.dumps({"config": {"c": payload}}).encode()
        members[f"{root}/data/constants/opaque_obj_0"] = pickle.dumps(Trap())
    else:
        place = "sample_inputs" if member == "sample_inputs" else "weights"
        members[f"{root}/data/{place}/model.pt"] = pickle.dumps(Trap())
    with zipfile.ZipFile(open_exported.path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    text = refusal(open_exported, [("x", "FP32", [2])], [("RESULT", "FP32", [3])])
    assert "of the PT2 archive is a pickle" in text
    assert not (tmp_path / "sprung").exists()


@pytest.mark.slow
def test_an_aotinductor_package(open_exported):
    symbols = importlib.import_module("torch.fx.experimental._config")

    # Without this the compiled program takes no batch of one.
    with warnings.catch_warnings(), symbols.patch(backed_size_oblivious=True):
        warnings.simplefilter("ignore")
        program = torch.export.export(
            Linear(),
            (torch.zeros(3, 2),),
            dynamic_shapes={"x": {0: torch.export.Dim("batch", min=1, max=64)}},
        )
        torch._inductor.aoti_compile_and_package(program, package_path=str(open_exported.path))
    instance = open_exported([("ARGS[0]", "FP32", [2])], [("RESULT", "FP32", [3])])
    assert instance.run({"ARGS[0]": np.ones((5, 2), np.float32)})[0].tolist() == [[3, 7, 11]] * 5
    with pytest.raises(RequestError, match="PyTorch execute failure: "):
        instance.run({"ARGS[0]": np.ones((5, 3), np.float32)})
    assert instance.run({"ARGS[0]": np.ones((1, 2), np.float32)})[0].tolist() == [[3, 7, 11]]


X, Y = [("x", "FP32", [2])], [("OUT__0", "FP32", [3])]


@pytest.mark.parametrize(
    "key",
    [
        "DISABLE_OPTIMIZED_EXECUTION",
        "INFERENCE_MODE",
        "DISABLE_CUDNN",
        "ENABLE_WEIGHT_SHARING",
        "ENABLE_CACHE_CLEANING",
        "ENABLE_JIT_EXECUTOR",
        "ENABLE_JIT_PROFILING",
        "ENABLE_TENSOR_FUSER",
    ],
)
def test_switches(open_model, key):
    text = refusal(open_model, Linear(), X, Y, extra=parameter(key, "maybe"))
    assert text == f"failed to convert 'maybe' to boolean (parameter '{key}' of model 'm')"


@pytest.mark.parametrize("key", ["INTRA_OP_THREAD_COUNT", "INTER_OP_THREAD_COUNT"])
def test_thread_counts_are_numbers(open_model, key):
    text = refusal(open_model, Linear(), X, Y, extra=parameter(key, "two"))
    assert text == f"failed to convert 'two' to integral number (parameter '{key}' of model 'm')"


class Modes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1) if torch.is_grad_enabled() else x


@pytest.mark.parametrize(("value", "inference"), [("", True), ("true", True), ("false", False)])
def test_inference_mode(open_model, monkeypatch, value, inference):
    seen = Spy(monkeypatch, torch.is_inference_mode_enabled)
    extra = parameter("INFERENCE_MODE", value) if value else ""
    instance = open_model(Modes(), [("x", "FP32", [2])], [("OUT__0", "FP32", [2])], extra=extra)
    assert instance.run({"x": np.zeros((1, 2), np.float32)})[0].tolist() == [[0, 0]]
    assert seen == [inference]
    assert torch.is_grad_enabled()


class Spy(list):
    """Remembers what PyTorch says of itself while a model runs."""

    def __init__(self, monkeypatch, ask):
        super().__init__()
        take = torch.from_numpy
        monkeypatch.setattr(torch, "from_numpy", lambda array: (self.append(ask()), take(array))[1])


@pytest.mark.parametrize("disabled", [True, False])
def test_optimized_execution(open_model, monkeypatch, disabled):
    seen = Spy(monkeypatch, torch._C._get_graph_executor_optimize)
    extra = parameter("DISABLE_OPTIMIZED_EXECUTION", str(disabled))
    open_model(Linear(), X, Y, extra=extra).run({"x": np.zeros((1, 2), np.float32)})
    assert seen == [not disabled]
    assert torch._C._get_graph_executor_optimize()


@pytest.mark.parametrize("disabled", [True, False])
def test_cudnn(open_model, monkeypatch, disabled):
    monkeypatch.setattr(torch.backends.cudnn, "enabled", disabled)
    open_model(Linear(), X, Y, extra=parameter("DISABLE_CUDNN", str(disabled)))
    assert torch.backends.cudnn.enabled is not disabled


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("ENABLE_JIT_EXECUTOR", "_jit_set_profiling_executor"),
        ("ENABLE_JIT_PROFILING", "_jit_set_profiling_mode"),
        ("ENABLE_TENSOR_FUSER", "_jit_set_texpr_fuser_enabled"),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_jit_switches(open_model, monkeypatch, key, name, value):
    seen = []
    monkeypatch.setattr(torch._C, name, seen.append)
    instance = open_model(Linear(), X, Y, extra=parameter(key, str(value)))
    assert seen == [value]
    assert instance.run({"x": np.ones((1, 2), np.float32)})[0].tolist() == [[3, 7, 11]]


def test_weights_are_shared_only_if_asked_for(open_model):
    sharing = parameter("ENABLE_WEIGHT_SHARING", "true")
    apart = [open_model(Linear() if not number else None, X, Y, name=f"m_{number}") for number in range(2)]
    together = [open_model(None, X, Y, name=f"m_{number}", extra=sharing) for number in range(2)]
    assert apart[0]._model is not apart[1]._model
    assert together[0]._model is together[1]._model
    for instance in (*apart, *together):
        assert instance.run({"x": np.ones((1, 2), np.float32)})[0].tolist() == [[3, 7, 11]]


def test_switches_that_models_disagree_on(tmp_path):
    backend, path = PyTorchBackend(), tmp_path / "model.pt"
    scripted(Linear(), path)

    def config(name, value):
        settings = settings_of(X, Y, tmp_path, extra=parameter("ENABLE_TENSOR_FUSER", value))
        message = type(settings.message)()
        message.CopyFrom(settings.message)
        message.name = name
        return settings_from(message, tmp_path)

    before = torch._C._jit_texpr_fuser_enabled()
    try:
        first = backend.open(config("first", "false"), path, "m_0")
        assert not torch._C._jit_texpr_fuser_enabled()
        assert refusal(backend.open, config("second", "true"), path, "m_0") == (
            "parameter 'ENABLE_TENSOR_FUSER' holds for all PyTorch models of the server: model 'second' "
            "asks for "
            "true, model 'first' for false"
        )
        first.close()
        second = backend.open(config("second", "true"), path, "m_0")
        assert torch._C._jit_texpr_fuser_enabled()
        second.close()
    finally:
        torch._C._jit_set_texpr_fuser_enabled(before)


def test_thread_counts_that_differ_are_warned_of(open_model, caplog):
    before = torch.get_num_threads()
    try:
        open_model(Linear(), X, Y, extra=parameter("INTRA_OP_THREAD_COUNT", 1))
        assert torch.get_num_threads() == 1
        with caplog.at_level(logging.WARNING):
            open_model(None, X, Y, extra=parameter("INTRA_OP_THREAD_COUNT", 2))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert "'INTRA_OP_THREAD_COUNT' is ignored: model m has set it to 1 for the whole server" in caplog.text


def test_instances_run_side_by_side(open_model):
    instances = [
        open_model(
            Linear() if not number else None,
            X,
            Y,
            name=f"m_{number}",
            extra=parameter("ENABLE_WEIGHT_SHARING", "1"),
        )
        for number in range(2)
    ]
    wrong = []

    def work(instance, value):
        for _ in range(200):
            (result,) = instance.run({"x": np.full((2, 2), value, np.float32)})
            if result.tolist() != [[3 * value, 7 * value, 11 * value]] * 2:
                wrong.append(result)

    threads = [threading.Thread(target=work, args=(item, n)) for n, item in enumerate(instances, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


CONFIG = (
    'backend: "pytorch"\nmax_batch_size: 8\n'
    'input [{ name: "INPUT__0" data_type: TYPE_FP32 dims: [ 2 ] }]\n'
    'output [{ name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 3 ] }]\n'
)


def test_a_server_with_both_kinds_of_model(repository, started, tensor):
    repository.identity("onnx")
    for name, more in (("script", "dynamic_batching { }"), ("exported", 'platform: "torch_aoti"')):
        (repository.config(name, CONFIG + more) / "1").mkdir()
    scripted(Linear(), repository.path / "script" / "1" / "model.pt")
    exported(Linear(), repository.path / "exported" / "1" / "model.pt2", (torch.zeros(3, 2),))
    server = started(repository)
    for name in ("script", "exported"):
        answer = server.infer(name, {"inputs": [tensor([[1.0, 1.0], [2.0, 0.0]], name="INPUT__0")]})
        assert answer.status == 200, answer.body
        assert answer.json["outputs"][0]["data"] == [3, 7, 11, 2, 6, 10]
    assert server.ask("GET", "/v2/models/script").json["platform"] == "pytorch_libtorch"
    assert server.ask("GET", "/v2/models/exported").json["platform"] == "torch_aoti"


def test_a_model_without_config_is_told_to_have_one(repository, launch):
    (repository.path / "m" / "1").mkdir(parents=True)
    scripted(Linear(), repository.path / "m" / "1" / "model.pt")
    server = launch(repository.path)
    assert server.process.wait(60) == 3
    assert (
        "model configuration must contain at least one input, none were specified" in server.log.read_text()
    )


def test_torch_is_imported_only_for_its_models():
    code = (
        "import sys, pathlib\n"
        "from repobuild_serve.backends.table import backend_named\n"
        "import repobuild_serve.server\n"
        "backend_named('pytorch'); backend_named('onnxruntime')\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_torch_only_its_models_fail(load, repository, monkeypatch):
    repository.identity("onnx")
    (repository.config("script", CONFIG) / "1").mkdir()
    scripted(Linear(), repository.path / "script" / "1" / "model.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    models, (problem,) = load()
    assert problem.startswith("script, version 1: Unavailable: failed to load model 'script': PyTorch is not")
    assert problem.endswith("pip install 'repobuild[torch]'")
    assert [version.settings.name for version in models.ready_versions()] == ["onnx"]
