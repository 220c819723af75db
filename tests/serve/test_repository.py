"""From a model folder to a loaded model: configs, versions, checks and texts."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from repobuild_serve.errors import ConfigError
from repobuild_serve.repository import read_model
from repobuild_serve.scheduling.workers import ThreadWorker
from repobuild_serve.wire.classification import read_labels

IO = (
    'input [{ name: "IN" data_type: TYPE_FP32 dims: [ 2 ] }]\n'
    'output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }]\n'
)
HEAD = 'backend: "onnxruntime"\nmax_batch_size: 8\n'


def refused(repository, text, name="m"):
    repository.identity(name)
    repository.config(name, text)
    with pytest.raises(ConfigError) as caught:
        read_model(repository.path / name, auto_complete=False)
    return caught.value.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD.replace("8", "-1") + IO, "'max_batch_size' must be non-negative value for m"),
        (HEAD + IO.replace('name: "IN"', ""), "model input must specify 'name' for m"),
        (HEAD + IO.replace('name: "OUT"', ""), "model output must specify 'name' for m"),
        (HEAD + IO.replace("data_type: TYPE_FP32", "", 1), "model input 'IN' must specify 'data_type' for m"),
        (HEAD + IO.replace("dims: [ 2 ]", "", 1), "model input 'IN' must specify 'dims' for m"),
        (
            HEAD + IO.replace("[ 2 ]", "[ 0 ]", 1),
            (
                "model input 'IN' dimension must be integer >= 1, or -1 to indicate a variable-size "
                "dimension for m"
            ),
        ),
        (
            HEAD + IO.replace("[ 2 ]", "[ 2 ] reshape { shape: [ 3 ] }", 1),
            "model input 'IN' has different size for dims and reshape for m",
        ),
        (
            HEAD + IO.replace("[ 2 ]", "[ 2, -1, -1 ] reshape { shape: [ 2, -1 ] }", 1),
            "model input 'IN' has different number of variable-size dimensions for dims and reshape for m",
        ),
        (
            HEAD + IO.replace("[ 2 ]", "[ 2, -1 ] reshape { shape: [ -1, 2 ] }", 1),
            "model input 'IN' has different size for dims and reshape for m",
        ),
        (
            HEAD.replace("8", "0") + IO.replace("[ 2 ]", "[ 1 ] reshape { shape: [ ] }", 1),
            (
                "model input 'IN' cannot have empty reshape for non-batching model as scalar tensors are not "
                "supported for m"
            ),
        ),
        (
            HEAD + IO.replace("[ 2 ]", "[ 2 ] format: FORMAT_NHWC", 1),
            "model input NHWC/NCHW require 3 dims for m",
        ),
        (
            HEAD + IO.replace("[ 2 ]", "[ 2 ] is_shape_tensor: true", 1),
            "shape tensors are only supported for TensorRT platform for m",
        ),
        (
            HEAD + IO + "dynamic_batching { preferred_batch_size: [ 0 ] }",
            "dynamic batching preferred size must be positive for m",
        ),
        (
            HEAD + IO + "dynamic_batching { preferred_batch_size: [ 9 ] }",
            "dynamic batching preferred size must be <= max batch size for m",
        ),
        (
            HEAD + IO + "dynamic_batching { priority_levels: 2 }",
            "default priority level must be in range [1, 2] for m",
        ),
        (
            HEAD
            + IO
            + "dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY"
            + " default_timeout_microseconds: 5 } }",
            "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m",
        ),
        (
            'name: "zzz"',
            "unexpected directory name 'm' for model 'zzz', directory name must equal model name",
        ),
        ('platform: "zzz"', "unexpected platform type 'zzz' for m"),
    ],
)
def test_what_a_wrong_config_is_told(repository, text, expected):
    assert refused(repository, text) == expected


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ("sequence_batching { }", "sequence_batching"),
        ("response_cache { enable: true }", "response_cache"),
        ('model_repository_agents { agents [{ name: "checksum" }] }', "model_repository_agents"),
        (
            'batch_input [{ target_name: "X" data_type: TYPE_FP32 source_input: "IN" }]',
            "batch_input",
        ),
        ("instance_group [{ passive: true }]", "instance_group.passive"),
        ("instance_group [{ secondary_devices [{ kind: KIND_NVDLA }] }]", "instance_group.secondary_devices"),
    ],
)
def test_what_is_not_served_is_refused_and_named(repository, more, field):
    assert refused(repository, HEAD + IO + more) == (
        f"model configuration field '{field}' is not supported by this server yet for m"
    )


def test_libraries_of_operators_are_for_onnx_models_only(repository):
    operations = 'model_operations { op_library_filename: "x.so" }'
    assert "'model_operations' is not supported" in refused(
        repository, HEAD.replace("onnxruntime", "python") + IO + operations
    )


@pytest.mark.parametrize("field", ["allow_ragged_batch: true"])
def test_inputs_that_are_not_served_are_refused(repository, field):
    text = refused(repository, HEAD + IO.replace("[ 2 ]", f"[ 2 ] {field}", 1))
    assert text == (
        f"model configuration field 'input.{field.split(':')[0]}' is not supported by this server yet for m"
    )


def test_a_backend_that_answers_once_cannot_be_decoupled(repository, load):
    repository.identity("m", extra="model_transaction_policy { decoupled: true }")
    (problem,) = load()[1]
    assert "backend 'onnxruntime' gives exactly one response to each request" in problem


def test_switches_that_are_off_say_nothing(repository, load):
    repository.identity(
        "m", extra="response_cache { enable: false } model_transaction_policy { decoupled: false }"
    )
    assert load()[1] == []


def test_what_has_no_effect_here_is_accepted_and_reported(repository, load):
    extra = (
        "optimization { priority: PRIORITY_MAX eager_batching: true input_pinned_memory { enable: false } "
        "cuda { graphs: true } gather_kernel_buffer_threshold: 3 }"
    )
    repository.identity("m", extra=extra)
    models, problems = load()
    assert problems == []
    message = models.find("m", "").settings.message
    assert not message.optimization.input_pinned_memory.enable
    assert message.optimization.output_pinned_memory.enable


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            "instance_group [{ kind: KIND_GPU }]",
            "instance group m_0 of model m has kind KIND_GPU but no GPUs are available",
        ),
        (
            "instance_group [{ kind: KIND_CPU gpus: [ 0 ] }]",
            "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs",
        ),
        (
            'instance_group [{ profile: [ "1" ] }]',
            (
                "instance group m_0 of model m and platform onnxruntime_onnxspecifies profile field which "
                "is only supported for TensorRT models"
            ),
        ),
        (
            'parameters { key: "intra_op_thread_count" value { string_value: "two" } }',
            "failed to convert 'two' to integral number (parameter 'intra_op_thread_count' of model 'm')",
        ),
        (
            "version_policy { specific { versions: [ 7 ] } }",
            "at least one version must be available under the version policy of model 'm'",
        ),
        (
            "version_policy { latest { num_versions: 0 } }",
            "at least one version must be available under the version policy of model 'm'",
        ),
        ('default_model_filename: "other.onnx"', "does not exist"),
    ],
)
def test_what_a_load_that_fails_is_told(repository, load, more, reason):
    repository.identity("m")
    repository.config("m", HEAD + IO + more)
    models, problems = load()
    assert reason in problems[0]
    assert not models.readiness().up


def test_an_unknown_backend(repository, load):
    repository.identity("m")
    repository.config("m", 'backend: "zzz"\n' + IO)
    assert load()[1] == [
        (
            "m, version 1: Invalid argument: unable to find backend library for backend 'zzz', try "
            "specifying runtime on the model configuration."
        )
    ]


def test_lines_of_a_label_file(tmp_path):
    text = "a\x0cb\nc\r\n\nd\u2028e\x85f\nlast"
    for end in ("", "\n"):
        (tmp_path / "labels.txt").write_bytes((text + end).encode())
        assert read_labels(tmp_path, "labels.txt") == ("a\x0cb", "c", "", "d\u2028e\x85f", "last")
    (tmp_path / "labels.txt").write_bytes(b"")
    assert read_labels(tmp_path, "labels.txt") == ()


def test_paths_of_a_config_lie_in_the_model_folder(repository, load):
    repository.identity("m")
    folder = repository.config(
        "m",
        HEAD
        + IO.replace('"OUT"', '"OUT" label_filename: "/labels.txt"')
        + 'default_model_filename: "/model.onnx"\nmodel_warmup [{ name: "w" batch_size: 1 inputs { key: "IN" '
        'value { data_type: TYPE_FP32 dims: [ 2 ] input_data_file: "/data" } } }]\n',
    )
    (folder / "labels.txt").write_text("one\n")
    (folder / "warmup").mkdir()
    (folder / "warmup" / "data").write_bytes(bytes(8))
    models, problems = load()
    assert problems == []
    assert models.find("m", "").labels == [("one",)]


def test_a_missing_label_file(repository, load):
    repository.identity("m")
    repository.config("m", HEAD + IO.replace('"OUT"', '"OUT" label_filename: "labels.txt"'))
    path = repository.path / "m" / "labels.txt"
    assert load()[1] == [
        f"m, version 1: Internal: failed to open text file for read {path}: No such file or directory"
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            IO.replace("FP32", "INT32", 1),
            "configuration expects datatype TYPE_INT32 for input 'IN', model provides TYPE_FP32",
        ),
        (IO.replace('"IN"', '"X"'), "unexpected inference input 'X', allowed inputs are: IN"),
        (IO.replace('"OUT"', '"X"'), "unexpected inference output 'X', allowed outputs are: OUT"),
        (IO.replace("[ 2 ]", "[ 3 ]", 1), "the model expects 2 dimensions (shape [-1,2])"),
        (IO.replace("[ 2 ]", "[ 2, 1 ]", 1), "but the model configuration specifies 3 dimensions"),
        (
            IO.replace("}]", '}, { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }]', 1),
            "configuration expects 2 inputs, model provides 1",
        ),
    ],
)
def test_a_config_that_does_not_fit_the_model(repository, load, text, reason):
    repository.identity("m")
    repository.config("m", HEAD + text)
    assert reason in load()[1][0]


def test_batching_needs_a_batch_axis(repository, load):
    repository.identity("m", batch=0)
    repository.config("m", HEAD + IO)
    assert "for the model to support batching" in load()[1][0]


def test_a_file_that_is_no_model(repository, load):
    repository.identity("m")
    (repository.path / "m" / "1" / "model.onnx").write_bytes(b"nothing of the kind")
    assert "onnx runtime error" in load()[1][0]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", [10]),
        ("version_policy { latest { num_versions: 2 } }", [3, 10]),
        ("version_policy { all { } }", [1, 3, 10]),
        ("version_policy { specific { versions: [ 1, 10, 99 ] } }", [1, 10]),
    ],
)
def test_versions_by_policy(repository, load, policy, expected):
    for version in (1, 3, 10):
        repository.identity("m", version=version, extra=policy)
    (repository.path / "m" / "notes").mkdir()
    models, problems = load()
    assert problems == []
    assert [version.version for version in models.versions("m")] == expected
    assert models.find("m", "").version == expected[-1]


def test_leading_zeros_and_version_zero(repository, load):
    repository.identity("m", extra="version_policy { all { } }")
    (repository.path / "m" / "1").rename(repository.path / "m" / "007")
    repository.identity("m", version=0, extra="version_policy { all { } }")
    models, problems = load()
    assert problems == []
    assert [version.version for version in models.versions("m")] == [0, 7]


def test_one_version_that_fails_keeps_the_others_from_serving(repository, load):
    repository.identity("m", extra="version_policy { all { } }")
    repository.identity("m", version=2, extra="version_policy { all { } }")
    (repository.path / "m" / "2" / "model.onnx").write_bytes(b"broken")
    models, problems = load()
    assert models.versions("m") == []
    assert len(problems) == 1
    assert problems[0].startswith("m, version 2: ")
    records = models.tracked["m"].records
    assert [records[number].version for number in (1, 2)] == [None, None]
    assert not models.readiness().up


def test_a_model_without_config_is_completed(repository, load):
    repository.identity("m", dims=(-1, 3))
    (repository.path / "m" / "config.pbtxt").unlink()
    models, problems = load()
    assert problems == []
    config = models.find("m", "").settings.message
    assert (config.backend, config.platform, config.max_batch_size) == ("onnxruntime", "onnxruntime_onnx", 4)
    assert list(config.input[0].dims) == [-1, 3]
    assert config.HasField("dynamic_batching")
    assert list(config.dynamic_batching.preferred_batch_size) == [4]


def test_a_model_without_batch_axis_is_completed_with_whole_shapes(repository, load):
    repository.identity("m", "INT64", dims=(2, 3), batch=0)
    (repository.path / "m" / "config.pbtxt").unlink()
    models, _ = load()
    config = models.find("m", "").settings.message
    assert (config.max_batch_size, list(config.output[0].dims)) == (0, [2, 3])
    assert not config.HasField("dynamic_batching")


def test_batching_that_the_model_does_not_have_is_not_made_up(repository, load):
    repository.identity("m", batch=0)
    repository.config("m", "max_batch_size: 4")
    assert load()[1] == [
        (
            "m, version 1: Invalid argument: autofill failed for model 'm': model does not support batching "
            "while non-zero max_batch_size is specified"
        )
    ]


def test_nothing_is_completed_if_that_is_switched_off(repository, load):
    repository.identity("m")
    repository.config("m", 'backend: "onnxruntime"\nmax_batch_size: 4')
    assert "configuration expects 0 inputs, model provides 1" in load(auto_complete=False)[1][0]


def test_session_options_follow_the_config(repository, load, monkeypatch):
    import onnxruntime

    seen = []
    session = onnxruntime.InferenceSession

    def remember(path, options, **more):
        seen.append(options)
        return session(path, options, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", remember)
    values = {
        "intra_op_thread_count": 2,
        "inter_op_thread_count": 3,
        "execution_mode": 1,
        "enable_mem_arena": 0,
        "enable_mem_pattern": 0,
    }
    extra = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        for key, value in values.items()
    )
    repository.identity("m", extra=extra + "optimization { graph { level: 1 } }")
    assert load()[1] == []
    (options,) = seen
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 3)
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL
    assert (options.enable_cpu_mem_arena, options.enable_mem_pattern) == (False, False)
    assert options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED


def test_one_session_per_instance(repository, load):
    repository.identity("m")
    repository.config("m", HEAD + IO + 'instance_group [{ name: "g" count: 2 }, { count: 1 }]')
    models, _ = load()
    assert models.find("m", "").settings.instance_names == ("g_0", "g_1", "m_1_0")


@pytest.mark.parametrize(
    ("platform", "backend"),
    [
        ("pytorch_libtorch", "pytorch"),
        ("torch_aoti", "pytorch"),
        ("onnxruntime_onnx", "onnxruntime"),
        ("tensorrt_plan", "tensorrt"),
    ],
)
def test_platforms_that_name_a_backend(repository, platform, backend):
    (repository.config("m", f'platform: "{platform}"\n{IO}') / "1").mkdir()
    config = read_model(repository.path / "m", auto_complete=False).config
    assert (config.platform, config.backend) == (platform, backend)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('platform: "libtorch"', "unexpected 'platform' and 'backend' pair, got:libtorch, pytorch"),
        (
            'platform: "libtorch" backend: "pytorch"',
            "unexpected 'platform' and 'backend' pair, got:libtorch, pytorch",
        ),
        ('platform: "pytorch"', "unexpected platform type 'pytorch' for m"),
        ('platform: "onnxruntime"', "unexpected platform type 'onnxruntime' for m"),
        ('platform: "python"', "unexpected platform type 'python' for m"),
    ],
)
def test_other_names_for_a_platform_are_refused_as_by_triton(repository, text, told):
    """It knows ``libtorch`` well enough to find the backend, and then refuses it."""
    assert refused(repository, f"{text}\n{IO}") == told


@pytest.mark.parametrize("backend", ["libtorch", "pytorch_libtorch", "onnx"])
def test_other_names_for_a_backend_are_not_known_as_with_triton(repository, backend):
    (repository.config("m", f'backend: "{backend}"\n{IO}') / "1").mkdir()
    folder = read_model(repository.path / "m", auto_complete=False)
    assert folder.problem is not None
    assert f"unable to find backend library for backend '{backend}'" in folder.problem.text


WARM = (
    'model_warmup [{{ name: "w" batch_size: {size} count: {count} '
    'inputs {{ key: "{name}" value {{ {value} }} }} }}]'
)


def warm(size=1, count=1, name="IN", value="data_type: TYPE_FP32 dims: [ 2 ] zero_data: true"):
    return WARM.format(size=size, count=count, name=name, value=value)


def test_warm_up_runs_on_every_instance_and_is_counted(repository, load):
    repository.identity("m")
    (repository.path / "m" / "warmup").mkdir()
    np.array([1, 2], dtype=np.float32).tofile(repository.path / "m" / "warmup" / "rows")
    value = 'data_type: TYPE_FP32 dims: [ 2 ] input_data_file: "rows"'
    repository.config("m", HEAD + IO + "instance_group [{ count: 2 }]\n" + warm(3, 2, value=value))
    models, problems = load()
    assert problems == []
    statistics = models.find("m", "").statistics
    assert (statistics.execution_count, statistics.inference_count) == (4, 12)
    assert list(statistics.batches) == [3]


def test_a_sample_of_size_0_is_skipped(repository, load):
    repository.identity("m", extra=warm(0))
    models, problems = load()
    assert problems == []
    assert models.find("m", "").statistics.execution_count == 0


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (warm(9), "failed to run warmup sample 'w': batch size 9 for 'm_0_0', max allowed is 8; "),
        (
            warm(value="data_type: TYPE_FP32 dims: [ 2 ]"),
            "warmup setting expects input 'IN' to have input_data_type set",
        ),
        (
            warm(value="data_type: TYPE_FP32 dims: [ -1 ] zero_data: true"),
            "warmup setting expects all variable-size dimensions are specified for input 'IN'",
        ),
        (
            warm(value="data_type: TYPE_INT32 dims: [ 2 ] zero_data: true"),
            "inference input 'IN' data-type is 'INT32', but model 'm' expects 'FP32'",
        ),
        (warm(name="X"), "missing required input(s) ['IN']"),
        (
            warm(value='data_type: TYPE_FP32 dims: [ 2 ] input_data_file: "nope"'),
            "failed to open text file for read",
        ),
        (warm(value="data_type: TYPE_FP32 dims: [ 3 ] zero_data: true"), "unexpected shape for input 'IN'"),
    ],
)
def test_a_warm_up_that_fails_fails_the_load(repository, load, sample, reason):
    repository.identity("m", extra=sample)
    assert reason in load()[1][0]


@pytest.mark.parametrize("size", [9, 4_000_000_000])
def test_a_batch_that_is_too_large_is_told_once(repository, load, size):
    repository.identity("m", extra=warm(size))
    text = f"batch size {size} for 'm_0_0', max allowed is 8; "
    assert load()[1] == [
        f"m, version 1: Invalid argument: failed to run warmup sample 'w': {text}",
    ]


@pytest.mark.parametrize(
    ("wire", "size", "dims", "text"),
    [
        (
            "FP32",
            2_000_000_000,
            "1",
            "batch size 2000000000 for 'm_0_0', this server warms up with 1048576 requests at most",
        ),
        ("FP32", 1 << 20, "1025", "more data of input 'IN' than this server warms up with: 4294967296 bytes"),
        ("FP32", 1, "4611686018427387904", "more data of input 'IN'"),
        ("STRING", 1, "1000000000", "more data of input 'IN'"),
    ],
    ids=["requests", "batch", "request", "strings"],
)
@pytest.mark.parametrize("source", ["zero_data: true", "random_data: true", 'input_data_file: "rows"'])
def test_a_warm_up_that_would_take_all_memory_is_refused_before_it_does(
    repository, load, wire, size, dims, text, source
):
    value = f"data_type: TYPE_{wire} dims: [ {dims} ] {source}"
    repository.identity("m", "BYTES" if wire == "STRING" else wire, (-1,), extra=warm(size, value=value))
    config = repository.path / "m" / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 8", "max_batch_size: 2000000000"))
    (repository.path / "m" / "warmup").mkdir()
    (repository.path / "m" / "warmup" / "rows").write_bytes(bytes(8))
    [problem] = load()[1]
    assert text in problem


@pytest.mark.parametrize("source", ["zero_data", "random_data"])
def test_a_warm_up_of_strings_has_empty_ones(repository, load, source):
    value = f"data_type: TYPE_STRING dims: [ 3 ] {source}: true"
    repository.identity("m", "BYTES", (3,), extra=warm(8, value=value))
    models, problems = load()
    assert problems == []
    assert list(models.find("m", "").statistics.batches) == [8]


def test_the_requests_of_a_large_warm_up_are_one(monkeypatch, repository, load):
    """Memory does not grow with them but for the batch itself."""
    seen = []
    run_here = ThreadWorker.run_here

    def look(worker, tickets, rows):
        seen.append((len(tickets), len({id(ticket) for ticket in tickets}), rows))
        return run_here(worker, tickets, rows)

    monkeypatch.setattr(ThreadWorker, "run_here", look)
    repository.identity("m", batch=100_000, extra=warm(100_000, 3))
    assert load()[1] == []
    assert seen == [(100_000, 1, 100_000)] * 3


def test_a_warm_up_file_of_the_wrong_size(repository, load):
    value = 'data_type: TYPE_FP32 dims: [ 2 ] input_data_file: "rows"'
    repository.identity("m", extra=warm(value=value))
    (repository.path / "m" / "warmup").mkdir()
    (repository.path / "m" / "warmup" / "rows").write_bytes(bytes(7))
    assert "expects 8 bytes" in load()[1][0]


def test_rank_0_tensors_without_batching(repository, load):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Neg", ["IN"], ["OUT"])],
        "g",
        [value("IN", TensorProto.FLOAT, [])],
        [value("OUT", TensorProto.FLOAT, [])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    repository.onnx("m", model)
    repository.config("m", 'backend: "onnxruntime"\n' + IO.replace("[ 2 ]", "[ 1 ]"))
    assert load()[1] == []


def test_a_missing_config_is_refused_where_nothing_completes_it(repository):
    repository.identity("m")
    path = repository.path / "m" / "config.pbtxt"
    path.unlink()
    with pytest.raises(ConfigError) as caught:
        read_model(repository.path / "m", auto_complete=False)
    assert caught.value.text == f"failed to open text file for read {path}: No such file or directory"
    assert read_model(repository.path / "m", auto_complete=True).config.backend == "onnxruntime"
