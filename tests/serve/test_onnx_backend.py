"""The onnxruntime backend: parameters, accelerators, auto-complete, load checks and errors of runs."""

from __future__ import annotations

import logging
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from repobuild_serve.backends.onnx_providers import providers
from repobuild_serve.backends.onnxruntime import OnnxRuntimeBackend
from repobuild_serve.backends.parameters import Placement, boolean, integer, placement
from repobuild_serve.config.complete import complete_config
from repobuild_serve.config.parse import parse_text
from repobuild_serve.config.settings import settings_from
from repobuild_serve.errors import Code, LoadError, RequestError, StartError
from repobuild_serve.messages import model_config_class
from tests.operators import copy_library, upper_model

FLOAT = TensorProto.FLOAT
HEAD = 'name: "m"\nbackend: "onnxruntime"\n'
BATCH = f"{HEAD}max_batch_size: 8\n"
IN = 'input [{ name: "IN" data_type: TYPE_FP32 dims: [ 2 ] }]\n'
OUT = 'output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }]\n'


def value(name, dims, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def model(inputs, outputs, nodes=None, initializers=()):
    nodes = nodes or [helper.make_node("Identity", ["IN"], ["OUT"])]
    graph = helper.make_graph(nodes, "test", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def identity(dims=("batch", 2), kind=FLOAT):
    return model([value("IN", dims, kind)], [value("OUT", dims, kind)])


def message(text):
    return parse_text(text, "config.pbtxt", model_config_class()())


def settings_of(text, folder):
    config = message(text)
    complete_config(config, 1)
    return settings_from(config, folder)


def parameter(key, text):
    return f'parameters {{ key: "{key}" value {{ string_value: "{text}" }} }}\n'


@pytest.fixture
def path(tmp_path):
    """Writes a model: ``path(model)`` is its file."""

    def write(proto):
        onnx.save(proto, tmp_path / "model.onnx")
        return tmp_path / "model.onnx"

    return write


@pytest.fixture
def open_model(tmp_path, path):
    """Opens an instance: ``open_model(model, config text)``."""
    return lambda proto, text: OnnxRuntimeBackend().open(settings_of(text, tmp_path), path(proto), "m_0")


@pytest.fixture
def complete(path):
    """Completes a config: ``complete(model, config text)`` is the message."""

    def run(proto, text=HEAD, backend=None):
        config = message(text)
        (backend or OnnxRuntimeBackend()).complete(config, path(proto))
        return config

    return run


def refusal(call, *args):
    with pytest.raises(LoadError) as caught:
        call(*args)
    return caught.value.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("ON", True), ("1", True), ("False", False), ("off", False), ("0", False)],
)
def test_switches(text, expected):
    assert boolean(text, "here") is expected


@pytest.mark.parametrize("text", ["", "yes", "2", " true"])
def test_what_is_no_switch(text):
    assert refusal(boolean, text, "here") == f"failed to convert '{text}' to boolean (here)"


@pytest.mark.parametrize("text", ["", "2x", "1.0", "0x1", "\N{ARABIC-INDIC DIGIT TWO}"])
def test_what_is_no_number(text):
    assert refusal(integer, text, "here") == f"failed to convert '{text}' to integral number (here)"
    assert integer(" -3", "here") == -3


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("inter_op_thread_count", "x", "failed to convert 'x' to integral number"),
        ("execution_mode", "2", "Expected values for  execution_mode are 0 or 1 but got 2 ."),
        ("enable_mem_arena", "x", "failed to convert 'x' to boolean"),
        ("enable_mem_pattern", "2", "failed to convert '2' to boolean"),
        ("session.use_device_allocator_for_initializers", "yes", "must be 0 or 1, not 'yes'"),
        ("memory.enable_memory_arena_shrinkage", "cpu", "must list devices such as cpu:0"),
        ("cudnn_conv_algo_search", "3", "unsupported cudnn_conv_algo_search value '3' is requested"),
        ("cudnn_conv_algo_search", "x", "failed to convert 'x' to integral number"),
        ("arena_extend_strategy", "2", "unsupported arena_extend_strategy value '2' is requested"),
        ("gpu_mem_limit", "much", "failed to convert 'much' to integral number"),
        ("do_copy_in_default_stream", "x", "failed to convert 'x' to boolean"),
    ],
)
def test_parameters_of_the_wrong_kind(open_model, key, text, expected):
    assert expected in refusal(open_model, identity(), BATCH + IN + OUT + parameter(key, text))


def test_parameters_that_the_backend_does_not_have_are_warned_of(open_model, caplog):
    with caplog.at_level(logging.WARNING):
        open_model(identity(), BATCH + IN + OUT + parameter("intra_op_threads", 1))
    assert caplog.messages == ["model m: the onnxruntime backend has no parameter 'intra_op_threads'"]


@pytest.mark.parametrize(
    ("level", "expected"),
    [(-1, "BASIC"), (0, "ALL"), (1, "EXTENDED"), (2, None), (7, "ALL")],
)
def test_graph_levels(open_model, monkeypatch, level, expected):
    seen = []
    session = onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime,
        "InferenceSession",
        lambda path, options, **more: (seen.append(options), session(path, options, **more))[1],
    )
    open_model(identity(), BATCH + IN + OUT + f"optimization {{ graph {{ level: {level} }} }}")
    name = f"ORT_ENABLE_{expected}" if expected else "ORT_DISABLE_ALL"
    assert [options.graph_optimization_level for options in seen] == [
        getattr(onnxruntime.GraphOptimizationLevel, name)
    ]
    assert (seen[0].intra_op_num_threads, seen[0].inter_op_num_threads) == (0, 0)


def test_shrinking_the_arena(open_model):
    text = BATCH + IN + OUT + parameter("memory.enable_memory_arena_shrinkage", "cpu:0")
    instance = open_model(identity(), text)
    assert instance.run({"IN": np.ones((1, 2), np.float32)})[0].tolist() == [[1, 1]]


def accelerator(side, name, **parameters):
    inner = "".join(f'parameters {{ key: "{key}" value: "{text}" }} ' for key, text in parameters.items())
    return (
        f"optimization {{ execution_accelerators {{ {side}_execution_accelerator "
        f'[{{ name: "{name}" {inner}}}] }} }}\n'
    )


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (accelerator("cpu", "tensorrt"), "unknown Execution Accelerator 'tensorrt' is requested"),
        (accelerator("gpu", "openvino"), "unknown Execution Accelerator 'openvino' is requested"),
        (
            accelerator("cpu", "openvino"),
            "the installed ONNX Runtime has no OpenVINOExecutionProvider, only ",
        ),
        (accelerator("cpu", "openvino"), "pip install onnxruntime-openvino in its place"),
        (accelerator("cpu", "openvino", x="1"), "unknown parameter 'x' is provided for OpenVINO"),
        (accelerator("gpu", "tensorrt"), "pip install onnxruntime-gpu in its place"),
        (accelerator("gpu", "cuda"), "has no CUDAExecutionProvider"),
        (
            accelerator("gpu", "tensorrt", trt_x="1"),
            "unknown parameter 'trt_x' is provided for TensorRT Execution Accelerator",
        ),
        (
            accelerator("gpu", "tensorrt", precision_mode="FP8"),
            "unsupported precision mode 'FP8' is requested",
        ),
        (accelerator("gpu", "tensorrt", trt_dla_core="x"), "failed to convert 'x' to integral number"),
        (accelerator("gpu", "tensorrt", trt_dla_enable="x"), "failed to convert 'x' to boolean"),
        (accelerator("gpu", "cuda", use_ep_level_unified_stream="x"), "failed to convert 'x' to boolean"),
    ],
)
def test_accelerators_that_cannot_be_had(open_model, extra, expected):
    assert expected in refusal(open_model, identity(), BATCH + IN + OUT + extra)


GPU_BUILD = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]


def test_providers_of_a_gpu_instance(tmp_path):
    extra = (
        accelerator(
            "gpu", "tensorrt", precision_mode="FP16", max_workspace_size_bytes="1024", trt_dla_enable="true"
        )
        + parameter("cudnn_conv_algo_search", 2)
        + parameter("gpu_mem_limit", 99)
        + "instance_group [{ kind: KIND_GPU gpus: [ 1, 3 ] count: 2 }]\n"
    )
    settings = settings_of(BATCH + IN + OUT + extra, tmp_path)
    place = placement(settings, "m_0_1")
    assert place == Placement("KIND_GPU", 3)
    assert providers(settings, place, "m_0_1", GPU_BUILD) == [
        (
            "TensorrtExecutionProvider",
            {
                "trt_max_workspace_size": "1024",
                "trt_fp16_enable": "1",
                "trt_dla_enable": "1",
                "device_id": "3",
            },
        ),
        (
            "CUDAExecutionProvider",
            {"cudnn_conv_algo_search": "DEFAULT", "gpu_mem_limit": "99", "device_id": "3"},
        ),
        ("CPUExecutionProvider", {}),
    ]


def test_cuda_s_own_parameters(tmp_path):
    extra = accelerator("gpu", "cuda", cudnn_conv_use_max_workspace="0", do_copy_in_default_stream="false")
    settings = settings_of(BATCH + IN + OUT + extra, tmp_path)
    assert providers(settings, Placement("KIND_GPU", 0), "m_0", GPU_BUILD)[0] == (
        "CUDAExecutionProvider",
        {"cudnn_conv_use_max_workspace": "0", "do_copy_in_default_stream": "0", "device_id": "0"},
    )
    assert providers(settings, Placement("KIND_CPU"), "m_0", GPU_BUILD) == [("CPUExecutionProvider", {})]


def test_a_gpu_instance_without_a_gpu_build(open_model):
    text = refusal(open_model, identity(), BATCH + IN + OUT + 'instance_group [{ name: "m" kind: KIND_GPU }]')
    assert text.startswith("instance group m of model m has kind KIND_GPU but no GPUs are available")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"default-max-batch-size": "16"}, 16),
        ({"default-max-batch-size": "1"}, 1),
        ({"default-max-batch-size": "0"}, 0),
        ({"default-max-batch-size": "-2"}, 0),
        ({}, 4),
    ],
)
def test_the_default_max_batch_size(complete, given, expected):
    backend = OnnxRuntimeBackend()
    backend.configure(given, {})
    config = complete(identity(), HEAD, backend)
    assert config.max_batch_size == expected
    assert config.HasField("dynamic_batching") is (expected > 1)
    assert list(config.input[0].dims) == ([2] if expected else [-1, 2])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"default-max-batch-size": "x"}, "failed to convert 'x' to integral number"),
        ({"enable-global-threadpool": "x"}, "failed to convert 'x' to boolean"),
        ({"threads": "1"}, "the onnxruntime backend has no setting 'threads'"),
    ],
)
def test_a_wrong_backend_setting(given, text):
    with pytest.raises(StartError) as caught:
        OnnxRuntimeBackend().configure(given, {})
    assert text in caught.value.text
    assert caught.value.exit_code == 2


def test_the_global_thread_pool(path, tmp_path):
    path(identity(("batch", 64)))
    code = f"""
import pathlib, threading, logging
logging.basicConfig()
import numpy as np
from repobuild_serve.backends.onnxruntime import OnnxRuntimeBackend
from repobuild_serve.config.complete import complete_config
from repobuild_serve.config.parse import parse_text
from repobuild_serve.config.settings import settings_from
from repobuild_serve.messages import model_config_class
from tests.operators import copy_library, upper_model
def threads():
    return len(list(pathlib.Path("/proc/self/task").iterdir()))
backend, folder = OnnxRuntimeBackend(), pathlib.Path({str(tmp_path)!r})
backend.configure({{"enable-global-threadpool": "true", "intra_op_thread_count": "3"}}, {{}})
config = model_config_class()()
count = 'parameters {{ key: "intra_op_thread_count" value {{ string_value: "5" }} }}'
text = 'name: "m" backend: "onnxruntime" ' + count
parse_text(text, folder, config)
config.max_batch_size = 4
for role in (config.input.add(), config.output.add()):
    role.name, role.data_type = ("OUT" if role in config.output else "IN"), 11
    role.dims.append(64)
complete_config(config, 1)
settings = settings_from(config, folder)
opened = [backend.open(settings, folder / "model.onnx", f"m_{{n}}") for n in range(1)]
before = threads()
opened += [backend.open(settings, folder / "model.onnx", f"m_{{n}}") for n in range(4)]
assert threads() == before, (before, threads())
for instance in opened:
    (result,) = instance.run({{"IN": np.ones((2, 64), np.float32)}})
    assert result.shape == (2, 64)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "its thread counts have no effect" in done.stderr


def test_only_what_is_missing_is_completed(complete):
    config = complete(identity(), HEAD + IN.replace("[ 2 ]", "[ -1 ]"))
    assert list(config.input[0].dims) == [-1]
    assert (config.output[0].name, list(config.output[0].dims)) == ("OUT", [2])
    assert config.max_batch_size == 4
    config = complete(identity(), BATCH + OUT)
    assert (config.input[0].name, config.max_batch_size) == ("IN", 8)
    assert config.HasField("dynamic_batching")


def test_a_full_config_is_left_alone(complete):
    config = complete(identity(), HEAD + IN + OUT)
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")


def test_a_scheduler_that_is_there_stays(complete):
    config = complete(identity(), BATCH + "sequence_batching { }")
    assert config.WhichOneof("scheduling_choice") == "sequence_batching"


def test_ranks_0_and_1(complete):
    config = complete(identity(()))
    assert (config.max_batch_size, list(config.input[0].dims)) == (0, [1])
    assert not config.input[0].HasField("reshape")
    config = complete(identity(("batch",)))
    assert (config.max_batch_size, list(config.input[0].dims)) == (4, [1])
    assert config.input[0].HasField("reshape")
    assert list(config.input[0].reshape.shape) == []


def test_one_fixed_output_keeps_a_model_from_batching(complete):
    proto = model(
        [value("IN", ["n", 2])],
        [value("OUT", [1])],
        [helper.make_node("ReduceSum", ["IN"], ["OUT"], keepdims=0)],
    )
    proto.graph.output[0].CopyFrom(value("OUT", []))
    config = complete(proto)
    assert (config.max_batch_size, list(config.input[0].dims)) == (0, [-1, 2])
    assert refusal(complete, proto, BATCH) == (
        "autofill failed for model 'm': model does not support batching while non-zero max_batch_size is "
        "specified"
    )


def test_outputs_that_are_no_tensors(complete, open_model):
    nodes = [helper.make_node("SequenceConstruct", ["IN"], ["OUT"])]
    sequence = helper.make_tensor_sequence_value_info("OUT", FLOAT, ["batch", 2])
    proto = model([value("IN", ["batch", 2])], [sequence], nodes)
    expected = "Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 'OUT', expected 'ONNX_TYPE_TENSOR'."
    assert refusal(complete, proto) == expected
    assert refusal(open_model, proto, BATCH + IN + OUT) == expected


def with_default():
    nodes = [helper.make_node("Add", ["IN", "BIAS"], ["OUT"])]
    bias = numpy_helper.from_array(np.full(2, 10, np.float32), "BIAS")
    return model([value("IN", ["n", 2]), value("BIAS", [2])], [value("OUT", ["n", 2])], nodes, [bias])


OPTIONAL = (
    'input [{ name: "IN" data_type: TYPE_FP32 dims: [ -1, 2 ] }, '
    '{ name: "BIAS" data_type: TYPE_FP32 dims: [ 2 ] optional: true }]\n'
    'output [{ name: "OUT" data_type: TYPE_FP32 dims: [ -1, 2 ] }]\n'
)


def test_an_optional_input_is_an_initializer(open_model):
    instance = open_model(with_default(), HEAD + OPTIONAL)
    data = np.zeros((1, 2), np.float32)
    assert instance.run({"IN": data})[0].tolist() == [[10, 10]]
    assert instance.run({"IN": data, "BIAS": np.ones(2, np.float32)})[0].tolist() == [[1, 1]]


def test_optional_inputs_that_cannot_be(open_model):
    assert refusal(open_model, with_default(), BATCH + OPTIONAL.replace("-1, 2", "2")) == (
        "unable to load model 'm', optional input 'BIAS' is not supported for models that support batching"
    )
    assert refusal(open_model, with_default(), HEAD + OPTIONAL.replace("optional: true", "")) == (
        "unable to load model 'm', configuration expects 2 inputs, model provides 1"
    )
    assert "configuration expects 0 inputs, model provides 1" in refusal(
        open_model, identity(), HEAD + IN.replace("[ 2 ]", "[ -1, 2 ] optional: true") + OUT
    )


@pytest.mark.parametrize(
    ("proto", "text", "expected"),
    [
        (identity(("batch", "n")), BATCH + IN + OUT, "'OUT': the model expects 2 dimensions (shape [-1,-1])"),
        (
            identity(),
            BATCH + IN.replace("[ 2 ]", "[ 3 ]") + OUT,
            (
                "(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor "
                "shape, making "
                "complete shape [-1,3])"
            ),
        ),
        (
            identity((1, 2)),
            HEAD + IN + OUT,
            "(shape [1,2]) but the model configuration specifies 1 dimensions (shape [2])",
        ),
        (identity((1, 2)), BATCH + IN + OUT, "for the model to support batching"),
        (
            identity(()),
            HEAD + IN + OUT,
            (
                "unable to load model 'm', scalar tensor 'IN', should only provide 1 in the model "
                "configuration when the "
                "model doesn't support batching. Model configuration provided: [2]."
            ),
        ),
        (
            identity(),
            BATCH + IN.replace("FP32", "BF16") + OUT,
            "configuration expects datatype TYPE_BF16 for input 'IN', model provides TYPE_FP32",
        ),
        (
            identity(kind=TensorProto.BFLOAT16),
            BATCH + IN.replace("FP32", "BF16") + OUT.replace("FP32", "BF16"),
            "unsupported datatype TYPE_BF16 for input 'IN' for model 'm'",
        ),
        (
            identity(),
            BATCH + IN.replace("[ 2 ]", "[ 2 ] allow_ragged_batch: true") + OUT,
            (
                "configuration expects model provides input with shape [-1]  for ragged input 'IN', model "
                "provides [-1,2]"
            ),
        ),
    ],
    ids=["output-dims", "input-dims", "rank", "batch", "scalar", "datatype", "bf16", "ragged"],
)
def test_a_config_that_does_not_fit(open_model, proto, text, expected):
    assert expected in refusal(open_model, proto, text)


def test_input_dims_may_be_narrower(open_model):
    proto = model([value("IN", ["batch", "n"])], [value("OUT", ["batch", 2])])
    open_model(proto, BATCH + IN + OUT)


def test_a_ragged_input(open_model):
    text = BATCH + IN.replace("[ 2 ]", "[ -1 ] allow_ragged_batch: true") + OUT.replace("[ 2 ]", "[ ]")
    proto = identity(("n",))
    text = text.replace("dims: [ ]", "dims: [ 1 ] reshape { shape: [ ] }")
    instance = open_model(proto, text)
    assert instance.run({"IN": np.arange(5, dtype=np.float32)})[0].tolist() == [0, 1, 2, 3, 4]


def test_scalars(open_model):
    text = HEAD + (IN + OUT).replace("[ 2 ]", "[ 1, 1 ]")
    (result,) = open_model(identity(()), text).run({"IN": np.full((1, 1), 4, np.float32)})
    assert result.tolist() == [[4]]


def test_batch_inputs_are_inputs(open_model):
    nodes = [helper.make_node("Identity", ["IN"], ["OUT"]), helper.make_node("Identity", ["COUNT"], ["SAME"])]
    proto = model(
        [value("IN", ["batch", 2]), value("COUNT", ["n"])],
        [value("OUT", ["batch", 2]), value("SAME", ["n"])],
        nodes,
    )
    batch = (
        "batch_input [{ kind: BATCH_ELEMENT_COUNT data_type: TYPE_FP32 "
        'target_name: "COUNT" source_input: "IN" }]\n'
    )
    open_model(proto, BATCH + IN + OUT + batch)
    assert "unexpected inference input 'X', allowed inputs are: COUNT, IN" in refusal(
        open_model, proto, BATCH + IN + OUT + batch.replace('COUNT"', 'X"')
    )
    assert "configuration expects 1 inputs, model provides 2" in refusal(open_model, proto, BATCH + IN + OUT)


def control(kind="CONTROL_SEQUENCE_START", more="fp32_false_true: [ 0, 1 ]"):
    return f'sequence_batching {{ control_input [{{ name: "GO" control [{{ kind: {kind} {more} }}] }}] }}\n'


def test_sequence_controls(open_model):
    def proto(dims):
        return model(
            [value("IN", ["batch", 2]), value("GO", dims)],
            [value("OUT", ["batch", 2])],
            [helper.make_node("Add", ["IN", "GO"], ["OUT"])],
        )

    open_model(proto(["batch", 1]), BATCH + IN + OUT + control())
    assert "sequence control 'GO' in model has dims [2] but dims [1] is expected" in refusal(
        open_model, proto(["batch", 2]), BATCH + IN + OUT + control()
    )
    assert (
        "expects data-type TYPE_FP32 but the model configuration specifies data-type TYPE_INT32"
        in refusal(
            open_model, proto(["batch", 1]), BATCH + IN + OUT + control(more="int32_false_true: [ 0, 1 ]")
        )
    )


def test_a_run_that_fails_does_not_harm_the_next(open_model):
    nodes = [helper.make_node("Add", ["IN", "B"], ["OUT"])]
    proto = model(
        [value("IN", ["batch", "n"]), value("B", ["batch", "m"])], [value("OUT", ["batch", "k"])], nodes
    )
    text = (
        BATCH
        + IN.replace("[ 2 ]", "[ -1 ]")
        + IN.replace("[ 2 ]", "[ -1 ]").replace('"IN"', '"B"')
        + OUT.replace("[ 2 ]", "[ -1 ]")
    )
    instance = open_model(proto, text)
    ones = np.ones((1, 3), np.float32)
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            instance.run({"IN": ones, "B": np.ones((1, 2), np.float32)})
        assert caught.value.text.startswith(
            "onnx runtime error 1: Non-zero status code returned while running Add"
        )
        assert caught.value.code is Code.INTERNAL
        assert instance.run({"IN": ones, "B": ones})[0].tolist() == [[2, 2, 2]]


def test_the_errors_of_a_file_that_is_no_model(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"nothing of the kind")
    settings = settings_of(BATCH + IN + OUT, tmp_path)
    text = refusal(OnnxRuntimeBackend().open, settings, tmp_path / "model.onnx", "m_0")
    assert text.startswith("onnx runtime error 7: ")


def test_a_model_in_a_folder_with_external_data(repository, started, tensor):
    weights = np.arange(2048 * 2, dtype=np.float32).reshape(2, 2048)
    proto = model(
        [value("IN", ["batch", 2])],
        [value("OUT", ["batch", 2048])],
        [helper.make_node("MatMul", ["IN", "W"], ["OUT"])],
        [numpy_helper.from_array(weights, "W")],
    )
    for name, inner in (("folder", "1/model.onnx"), ("file", "1")):
        target = repository.path / name / inner
        target.mkdir(parents=True)
        onnx.save(
            proto, target / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
        )
        assert (target / "weights.bin").exists()
        # Saving moves the data out of the message.
        proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "W"))
    server = started(repository)
    for name in ("folder", "file"):
        answer = server.infer(name, {"inputs": [tensor([[1.0, 1.0]])]})
        assert answer.status == 200, answer.body
        assert answer.json["outputs"][0]["data"] == (weights[0] + weights[1]).tolist()
        assert server.ask("GET", f"/v2/models/{name}/config").json["max_batch_size"] == 4


def test_missing_external_data(repository, launch):
    target = repository.path / "m" / "1"
    target.mkdir(parents=True)
    proto = model(
        [value("IN", ["batch", 2])],
        [value("OUT", ["batch", 2048])],
        [helper.make_node("MatMul", ["IN", "W"], ["OUT"])],
        [numpy_helper.from_array(np.ones((2, 2048), np.float32), "W")],
    )
    onnx.save(
        proto, target / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    (target / "weights.bin").unlink()
    server = launch(repository.path)
    assert server.process.wait(60) == 3
    assert "weights.bin" in server.log.read_text()


def test_a_failed_batch_of_a_server_and_the_next(repository, started, tensor):
    nodes = [helper.make_node("Add", ["A", "B"], ["OUT"])]
    proto = model(
        [value("A", ["batch", "n"]), value("B", ["batch", "m"])], [value("OUT", ["batch", "k"])], nodes
    )
    repository.onnx("add", proto)
    server = started(repository)
    good = {"inputs": [tensor([[1.0, 2.0]], name="A"), tensor([[1.0, 1.0]], name="B")]}
    bad = {"inputs": [tensor([[1.0, 2.0]], name="A"), tensor([[1.0, 1.0, 1.0]], name="B")]}
    failed = server.infer("add", bad)
    assert failed.status == 500
    assert b"onnx runtime error 1: " in failed.body
    assert server.infer("add", good).json["outputs"][0]["data"] == [2, 3]


UPPER = (
    HEAD
    + 'max_batch_size: 4 input [{ name: "text" data_type: TYPE_STRING dims: [ 3 ] }]'
    + ' output [{ name: "loud" data_type: TYPE_STRING dims: [ 3 ] }] instance_group [{ kind: KIND_CPU }]\n'
)


def operations(*names):
    listed = ", ".join(f'"{name}"' for name in names)
    return f"model_operations {{ op_library_filename: [ {listed} ] }}\n"


def test_operators_of_a_library_are_served(repository, serving):
    repository.onnx("m", upper_model())
    library = copy_library(repository.path.parent)
    repository.config("m", UPPER + operations(library))
    text = {"name": "text", "datatype": "BYTES", "shape": [1, 3], "data": ["a", "Bc", ""]}
    answer = serving(repository.path).infer("m", {"inputs": [text]})
    assert answer.json["outputs"][0]["data"] == ["A", "BC", ""]


def test_completion_needs_the_library_too(tmp_path, complete):
    with pytest.raises(LoadError):
        complete(upper_model(), HEAD)
    config = complete(upper_model(), HEAD + operations(copy_library(tmp_path)))
    assert [i.name for i in (*config.input, *config.output)] == ["text", "loud"]


def test_a_library_that_is_not_found_is_named_as_the_linker_does(open_model):
    text = refusal(open_model, upper_model(), UPPER + operations("libabsent.so"))
    assert text.startswith("onnx runtime error 1: Failed to load library libabsent.so with error: ")
    assert "LD_LIBRARY_PATH" not in text


def test_a_library_in_the_models_folder_is_not_found_and_told_of(tmp_path):
    folder = tmp_path / "m" / "1"
    folder.mkdir(parents=True)
    copy_library(folder.parent, "libbeside.so")
    onnx.save(upper_model(), folder / "model.onnx")
    settings = settings_of(UPPER + operations("libbeside.so"), tmp_path / "m")
    text = refusal(OnnxRuntimeBackend().open, settings, folder / "model.onnx", "m_0")
    assert text.endswith(f"start the server with LD_LIBRARY_PATH={tmp_path / 'm'}")
