"""One planted mistake each, with its rule, file and line; and what is right instead, on which lint is silent."""

from __future__ import annotations

import importlib.util
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location("lint_samples", Path(__file__).with_name("samples.py"))
s = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(s)

HERE = s.MARK
PLAIN, FREE = s.PLAIN, s.FREE


@dataclass
class Case:
    """A mistake and what is right instead.

    ``at`` is where the finding belongs: the file, for one without lines; else the mark in the texts tells.
    """

    rule: str
    wrong: dict[str, Any]
    right: dict[str, Any]
    at: str | None = None
    target: str | None = None


def swap(rule, old, new, right=None, base=PLAIN, make=s.onnx, more=None, target=None):
    """A case that differs from its right counterpart by one piece of the configuration."""
    assert base.count(old) == 1, (rule, base.count(old))
    more = more or {}
    good = make(base.replace(old, old if right is None else right)) | more
    return Case(rule, make(base.replace(old, new)) | more, good, target=target)


def added(rule, text, right=None, base=PLAIN, make=s.onnx, more=None):
    """A case with a piece at the end of the configuration."""
    more = more or {}
    return Case(rule, make(base + text) | more, make(base + (right or "")) | more)


BATCHED = PLAIN + "dynamic_batching {\n  priority_levels: 2\n  default_priority_level: 1\n}\n"
ONNX_FREE = 'backend: "onnxruntime"\n'
SEQUENCE = (
    FREE
    + """sequence_batching {
  control_input {
    name: "start"
    control {
      kind: CONTROL_SEQUENCE_START
      int32_false_true: [0, 1]
    }
  }
  control_input {
    name: "id"
    control {
      kind: CONTROL_SEQUENCE_CORRID
      data_type: TYPE_UINT64
    }
  }
  oldest {
    max_candidate_sequences: 4
    preferred_batch_size: 4
  }
}
"""
)
WARM = (
    PLAIN
    + """model_warmup {
  name: "w"
  batch_size: 8
  inputs {
    key: "x"
    value {
      data_type: TYPE_FP32
      dims: 2
      input_data_file: "row"
    }
  }
}
"""
)
ROW = {"m/warmup/row": struct.pack("<2f", 1, 2)}
TEXT_GRAPH = s.graph((("x", "STRING", ("batch", 2)),))
TEXT_WARM = WARM.replace("TYPE_FP32\n  dims: [2]", "TYPE_STRING\n  dims: [2]").replace(
    "data_type: TYPE_FP32\n      dims: 2", "data_type: TYPE_STRING\n      dims: 2"
)
TEXTS = struct.pack("<I", 2) + b"ab" + struct.pack("<I", 0)
LABELLED = PLAIN.replace("  dims: [3]\n", '  dims: [3]\n  label_filename: "labels.txt"\n')
PLAN = (
    PLAIN.replace("onnxruntime", "tensorrt")
    + """cc_model_filenames {
  key: "8.6"
  value: "sm86.plan"
}
"""
)
STATEFUL = (
    PLAIN.replace("onnxruntime", "tensorrt")
    + """sequence_batching { state {
  input_name: "x" output_name: "y" data_type : TYPE_INT32 dims : 3
  initial_state {
    name: "s"
    data_type: TYPE_INT32
    dims: 3
    data_file: "three"
  }
  # another
} }
"""
)
TORCH = PLAIN.replace("onnxruntime", "pytorch").replace('"x"', '"INPUT__0"').replace('"y"', '"OUTPUT__0"')
SCRIPT = s.zipped("m/code/__torch__.py", "m/constants.pkl", "m/data.pkl")
ENSEMBLE = """platform: "ensemble"
max_batch_size: 8
input {
  name: "raw"
  data_type: TYPE_FP32
  dims: 2
}
output {
  name: "score"
  data_type: TYPE_FP32
  dims: 2
}
ensemble_scheduling {
  step {
    model_name: "a"
    model_version: -1
    input_map {
      key: "x"
      value: "raw"
    }
    output_map {
      key: "y"
      value: "middle"
    }
  }
  step {
    model_name: "b"
    model_version: -1
    input_map {
      key: "x"
      value: "middle"
    }
    output_map {
      key: "y"
      value: "score"
    }
  }
}
"""
MEMBER = FREE.replace("[3]", "[2]")
MEMBERS = s.python(MEMBER, name="a") | s.python(MEMBER, name="b")


def plan(config=PLAN, **files):
    """A TensorRT model with one plan for compute capability 8.6."""
    return {"m/config.pbtxt": config, "m/1/sm86.plan": b"plan"} | files


def torch(config=TORCH, file=SCRIPT):
    """A TorchScript model."""
    return {"m/config.pbtxt": config, "m/1/model.pt": file}


def ensemble(config=ENSEMBLE, **_):
    """An ensemble of two python models."""
    return {"m/config.pbtxt": config, "m/1": None} | MEMBERS


def warm(config=WARM):
    """A model with a warm-up file."""
    return s.onnx(config) | ROW


def labelled(config=LABELLED, labels="a\nb\nc\n"):
    """A model with a label file."""
    return s.onnx(config) | {"m/labels.txt": labels}


def same(rule, wrong, right, at=None, target=None):
    """A case given by its files."""
    return Case(rule, wrong, right, at, target)


def stateful(config):
    """A TensorRT model whose state has one variable axis."""
    return {"m/config.pbtxt": config, "m/1/model.plan": b"plan"} | {
        "m/initial_state/two": bytes(8),
        "m/initial_state/three": bytes(12),
    }


SCALAR = s.graph((("x", "FLOAT", ("batch", 2)),), (("y", "FLOAT", ("batch",)),))
UNBATCHED = (
    PLAIN.replace("max_batch_size: 8", "max_batch_size: 0").replace("[2]", "[4, 2]").replace("[3]", "[4, 3]")
)
FIXED = s.graph((("x", "FLOAT", (4, 2)),), (("y", "FLOAT", (4, 3)),))


def fixed(config=UNBATCHED):
    """A graph without a batch axis."""
    return s.onnx(config, FIXED)


def external(location="weights.bin", length=8, **files):
    """A model whose weights lie in another file."""
    model = s.graph(external=(("w", location, 0, length),))
    return s.onnx(model=model) | {k.replace("__", "/"): v for k, v in files.items()}


CASES = [
    # config.pbtxt as text
    swap("config-unreadable", "  dims: [2]", f"  dimz: [2]  {HERE}"),
    swap("config-unreadable", "TYPE_FP32\n  dims: [2]", f"TYPE_FLOAT {HERE}\n  dims: [2]"),
    added("config-unreadable", f"max_batch_size: 4 {HERE}\n"),
    added(
        "config-unreadable",
        f"dynamic_batching {{ }}\nsequence_batching {{ }} {HERE}\n",
        "dynamic_batching { }\n",
    ),
    same(
        "config-not-text",
        {**s.onnx(), "m/config.pbtxt": b'name: "m"\n# \xff'},
        s.onnx(),
        ("m/config.pbtxt", 2),
    ),
    same("config-too-large", s.onnx(PLAIN + "#" * (1 << 20)), s.onnx(PLAIN + "#" * 1000), "m/config.pbtxt"),
    same(
        "config-not-file",
        {"m/config.pbtxt": None, "m/1/model.onnx": s.graph()},
        s.onnx(),
        "m/config.pbtxt",
    ),
    added(
        "config-key-twice",
        'parameters { key: "intra_op_thread_count" value { string_value: "1" } }\n'
        f'parameters {{ key: "intra_op_thread_count" value {{ string_value: "2" }} }} {HERE}\n',
        'parameters { key: "intra_op_thread_count" value { string_value: "2" } }\n',
    ),
    *(
        added(
            "enum-unknown",
            f"instance_group {{ count: 1 }}\ninstance_group {{\n  kind: {number} {HERE}\n}}\n",
            "instance_group { count: 1 }\ninstance_group { kind: 2 }\n",
        )
        for number in (99, -1, 4, 2147483647)
    ),
    swap(
        "enum-unknown",
        "  data_type: TYPE_FP32\n  dims: [3]",
        f"  data_type: 99 {HERE}\n  dims: [3]",
        "  data_type: 0xb\n  dims: [3]",
        base=FREE,
        make=s.python,
    ),
    swap(
        "enum-unknown",
        "  priority_levels: 2\n",
        f"  priority_levels: 2\n  priority_queue_policy {{\n    key: 2 value {{ timeout_action: 2 {HERE}\n  }} }}\n",
        base=BATCHED,
    ),
    # Identity
    added("name-mismatch", f'name: "other" {HERE}\n', 'name: "m"\n'),
    swap("backend-misspelt", 'backend: "onnxruntime"', f'backend: "onnxruntine" {HERE}'),
    swap("backend-unknown", 'backend: "onnxruntime"', f'backend: "my_company" {HERE}'),
    swap(
        "platform-unknown",
        'backend: "onnxruntime"',
        f'platform: "onnx" {HERE}',
        'platform: "onnxruntime_onnx"',
    ),
    added(
        "platform-backend-mismatch", f'platform: "tensorrt_plan" {HERE}\n', 'platform: "onnxruntime_onnx"\n'
    ),
    added("platform-ignored", f'platform: "python" {HERE}\n', base=FREE, make=s.python),
    same("backend-undetermined", {"m/notes/readme.md": "x", **s.onnx(name="n")}, s.onnx(name="n"), "m"),
    swap("max-batch-negative", "max_batch_size: 8", f"max_batch_size: -1 {HERE}", base=FREE, make=s.python),
    # Tensors
    swap(
        "tensor-name-missing",
        '  name: "y"\n',
        "",
        base=FREE.replace("output {", f"output {{ {HERE}"),
        make=s.python,
    ),
    added(
        "tensor-name-twice",
        f'output {{\n  name: "y" {HERE}\n  data_type: TYPE_FP32\n  dims: [3]\n}}\n',
        'output {\n  name: "z"\n  data_type: TYPE_FP32\n  dims: [3]\n}\n',
        base=FREE,
        make=s.python,
    ),
    swap(
        "tensor-type-missing",
        "  data_type: TYPE_FP32\n  dims: [2]",
        "  dims: [2]",
        base=PLAIN.replace("input {", f"input {{ {HERE}"),
    ),
    swap("tensor-dims-missing", "  dims: [2]\n", "", base=PLAIN.replace("input {", f"input {{ {HERE}")),
    swap(
        "tensor-dim-invalid", "  dims: [2]", f"  dims: [\n    2,\n    0 {HERE}\n  ]", base=FREE, make=s.python
    ),
    swap("tensor-dim-invalid", "  dims: [2]", f"  dims: 2\n  dims: -3 {HERE}\n", base=FREE, make=s.python),
    swap(
        "reshape-size",
        "  dims: [2]",
        f"  dims: [2]\n  reshape {{ shape: [3] }} {HERE}",
        "  dims: [2]\n  reshape { shape: [1, 2] }",
        base=FREE,
        make=s.python,
    ),
    swap(
        "reshape-size",
        "  dims: [2]",
        f"  dims: [2, -1, 6]\n  reshape {{ shape: [3, -1, 4] }} {HERE}",
        "  dims: [2, 4, -1, 6]\n  reshape { shape: [8, -1, 1, 6] }",
        base=FREE,
        make=s.python,
    ),
    swap(
        "reshape-wildcards",
        "  dims: [2]",
        f"  dims: [-1, 2]\n  reshape {{ shape: [2] }} {HERE}",
        "  dims: [-1, 2]\n  reshape { shape: [2, -1] }".replace("2, -1] }", "-1, 2] }"),
        base=FREE,
        make=s.python,
    ),
    swap(
        "reshape-dim-invalid",
        "  dims: [2]",
        f"  dims: [2]\n  reshape {{\n    shape: 0 {HERE}\n  }}",
        base=FREE,
        make=s.python,
    ),
    swap(
        "reshape-empty",
        "  dims: [2]",
        f"  dims: [1]\n  reshape {{ }} {HERE}",
        "  dims: [1]",
        base=FREE.replace("max_batch_size: 8", "max_batch_size: 0"),
        make=s.python,
    ),
    swap(
        "format-dims",
        "  dims: [2]",
        f"  dims: [2]\n  format: FORMAT_NCHW {HERE}",
        "  dims: [3, 8, 8]\n  format: FORMAT_NCHW",
        base=FREE,
        make=s.python,
    ),
    swap(
        "shape-tensor",
        "  dims: [2]",
        f"  dims: [2]\n  is_shape_tensor: true {HERE}",
        base=FREE,
        make=s.python,
    ),
    swap(
        "non-linear-format",
        "  dims: [3]",
        f"  dims: [3]\n  is_non_linear_format_io: true {HERE}",
        base=FREE,
        make=s.python,
    ),
    swap(
        "ragged-without-batching",
        "  dims: [2]",
        f"  dims: [2]\n  allow_ragged_batch: true {HERE}",
        base=FREE.replace("max_batch_size: 8", "max_batch_size: 0"),
        make=s.python,
    ),
    *(
        added(
            rule,
            f"batch_{what} {{\n{wrong}\n}}\n",
            f"batch_{what} {{\n{good}\n}}\n",
            base=FREE,
            make=s.python,
        )
        for rule, what, wrong, good in (
            (
                "batch-source-unknown",
                "input",
                f'kind: BATCH_ELEMENT_COUNT target_name: "n" data_type: TYPE_FP32\nsource_input: "zz" {HERE}',
                'kind: BATCH_ELEMENT_COUNT target_name: "n" data_type: TYPE_FP32 source_input: "x"',
            ),
            (
                "batch-input-type",
                "input",
                f'kind: BATCH_ELEMENT_COUNT target_name: "n"\ndata_type: TYPE_INT64 {HERE}\nsource_input: "x"',
                'kind: BATCH_ELEMENT_COUNT target_name: "n" data_type: TYPE_INT32 source_input: "x"',
            ),
            (
                "batch-target-unknown",
                "output",
                f'target_name: "zz" {HERE}\nkind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x"',
                'target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x"',
            ),
            (
                "batch-target-twice",
                "output",
                f'target_name: ["y",\n"y"] {HERE}\nkind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x"',
                'target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x"',
            ),
        )
    ),
    added(
        "batch-source-count",
        f'batch_input {{ {HERE}\nkind: BATCH_ELEMENT_COUNT target_name: "n" data_type: TYPE_FP32\n}}\n',
        base=FREE,
        make=s.python,
    ),
    # Scheduling
    swap(
        "batching-without-batch",
        "max_batch_size: 0",
        f"max_batch_size: 0\ndynamic_batching {{ }} {HERE}",
        base=UNBATCHED,
        make=fixed,
    ),
    added(
        "preferred-size-large",
        f"dynamic_batching {{\n  preferred_batch_size: [\n4,\n16 {HERE}\n]\n}}\n",
        "dynamic_batching {\n  preferred_batch_size: [4, 8]\n}\n",
    ),
    added(
        "preferred-size-invalid",
        f"dynamic_batching {{\n  preferred_batch_size: 0 {HERE}\n}}\n",
        "dynamic_batching { }\n",
    ),
    swap("priority-default", "default_priority_level: 1", f"default_priority_level: 3 {HERE}", base=BATCHED),
    swap(
        "priority-policy",
        "  priority_levels: 2\n",
        "  priority_levels: 2\n  priority_queue_policy { key: 1 value { max_queue_size: 4 } }\n"
        f"  priority_queue_policy {{ key: 3 value {{ max_queue_size: 4 }} }} {HERE}\n",
        "  priority_levels: 2\n  priority_queue_policy { key: 1 value { max_queue_size: 4 } }\n",
        base=BATCHED,
    ),
    swap(
        "ordering-priorities",
        "  priority_levels: 2\n",
        f"  priority_levels: 2\n  preserve_ordering: true {HERE}\n",
        base=BATCHED,
    ),
    added(
        "ordering-delay",
        "dynamic_batching {\n  preserve_ordering: true\n  default_queue_policy {\n"
        f"    timeout_action: DELAY {HERE}\n    default_timeout_microseconds: 100\n  }}\n}}\n",
        "dynamic_batching {\n  default_queue_policy {\n    timeout_action: DELAY\n"
        "    default_timeout_microseconds: 100\n  }\n}\n",
    ),
    added(
        "timeout-without-effect",
        f"dynamic_batching {{\n  default_queue_policy {{\n    allow_timeout_override: true {HERE}\n  }}\n}}\n",
        "dynamic_batching {\n  default_queue_policy {\n    allow_timeout_override: true\n"
        "    default_timeout_microseconds: 1000\n  }\n}\n",
    ),
    added("cache-sequence", f"response_cache {{\n  enable: true {HERE}\n}}\n", base=SEQUENCE, make=s.python),
    added(
        "cache-decoupled",
        f"model_transaction_policy {{ decoupled: true }}\nresponse_cache {{ enable: true }} {HERE}\n",
        "model_transaction_policy { decoupled: true }\n",
        base=FREE,
        make=s.python,
    ),
    added("decoupled-backend", f"model_transaction_policy {{ decoupled: true }} {HERE}\n"),
    swap("control-tensor-twice", '    name: "id"', f'    name: "start" {HERE}', base=SEQUENCE, make=s.python),
    swap(
        "control-name-missing",
        '    name: "id"\n',
        "",
        base=SEQUENCE.replace("  }\n  control_input {", f"  }}\n  control_input {{ {HERE}"),
        make=s.python,
    ),
    swap(
        "control-kind-twice",
        "kind: CONTROL_SEQUENCE_CORRID\n      data_type: TYPE_UINT64",
        f"kind: CONTROL_SEQUENCE_START {HERE}\n      int32_false_true: [0, 1]",
        base=SEQUENCE,
        make=s.python,
    ),
    swap(
        "control-pair",
        "int32_false_true: [0, 1]",
        f"int32_false_true: [1] {HERE}",
        base=SEQUENCE,
        make=s.python,
    ),
    swap(
        "control-corrid",
        "data_type: TYPE_UINT64",
        f"data_type: TYPE_FP32 {HERE}",
        base=SEQUENCE,
        make=s.python,
    ),
    swap(
        "sequence-preferred-size",
        "preferred_batch_size: 4",
        f"preferred_batch_size: 9 {HERE}",
        base=SEQUENCE,
        make=s.python,
    ),
    added(
        "slot-utilization",
        f"sequence_batching {{\n  direct {{\n    minimum_slot_utilization: 1.5 {HERE}\n  }}\n}}\n",
        "sequence_batching {\n  direct {\n    minimum_slot_utilization: 0.5\n  }\n}\n",
        base=FREE,
        make=s.python,
    ),
    added(
        "state-backend",
        "sequence_batching {\n  state { "
        + HERE
        + '\n input_name: "a" output_name: "b" data_type: TYPE_FP32 dims: 1\n  }\n}\n',
        "sequence_batching { }\n",
        base=FREE,
        make=s.python,
    ),
    added(
        "state-file-missing",
        'sequence_batching { state { input_name: "x" output_name: "y" data_type: TYPE_FP32 dims: 2\n'
        f'initial_state {{ name: "s" data_type: TYPE_FP32 dims: 2\ndata_file: "zeros" {HERE}\n}} }} }}\n',
        base=PLAIN.replace("onnxruntime", "tensorrt"),
        make=lambda c: {"m/config.pbtxt": c, "m/1/model.plan": b"plan"},
    ),
    *(
        swap(rule, old, f"{new} {HERE}\n", base=STATEFUL, make=stateful)
        for rule, old, new in (
            ("state-initial-unfit", "dims: 3", "dims: 4"),
            ("state-initial-unfit", "dims: 3", "dims: [1, 3]"),
            ("state-initial-unfit", "dims: 3", "dims: -1"),
            ("state-initial-unfit", "data_type: TYPE_INT32", "data_type: TYPE_INT64"),
            ("state-file-short", '"three"', '"two"'),
        )
    ),
    *(
        swap(
            "state-initial-incomplete",
            f"{piece}\n",
            "\n",
            base=STATEFUL.replace("l_state {", f"l_state {{ {HERE}"),
            make=stateful,
        )
        for piece in ('name: "s"', 'data_file: "three"')
    ),
    swap(
        "state-initial-unfit",
        "# another",
        f"initial_state {{ {HERE}\nname: 't' data_type: TYPE_INT32 dims: 3 zero_data: true }}",
        base=STATEFUL,
        make=stateful,
    ),
    same(
        "python-syntax-unsure",
        s.python(source=s.PYTHON + f"def broken( {HERE}\n"),
        s.python(),
        target="99.99",
    ),
    added(
        "agent-unknown",
        f'model_repository_agents {{ agents {{ name: "secret" }} }} {HERE}\n',
        'model_repository_agents { agents { name: "checksum" } }\n',
    ),
    # Instances and settings
    added(
        "instance-cpu-gpus",
        f"instance_group {{\n  kind: KIND_CPU\n  gpus: [0] {HERE}\n}}\n",
        "instance_group { kind: KIND_GPU gpus: [0] }\n",
    ),
    added(
        "instance-profile", f'instance_group {{\n  profile: "0" {HERE}\n}}\n', "instance_group { count: 1 }\n"
    ),
    added("instance-count", f"instance_group {{\n  count: 0 {HERE}\n}}\n", "instance_group { count: 2 }\n"),
    added(
        "instance-tensorrt-cpu",
        f"instance_group {{\n  kind: KIND_CPU {HERE}\n}}\n",
        "instance_group { kind: KIND_GPU }\n",
        base=PLAIN.replace("onnxruntime", "tensorrt"),
        make=lambda c: {"m/config.pbtxt": c, "m/1/model.plan": b"p"},
    ),
    same(
        "instance-gpu-unused",
        s.onnx(
            PLAIN + f"instance_group {{ kind: KIND_GPU }} {HERE}\n",
            s.graph(ml=3, nodes=(("ai.onnx.ml", "TreeEnsembleClassifier"),)),
        ),
        s.onnx(
            PLAIN + "instance_group { kind: KIND_CPU }\n",
            s.graph(ml=3, nodes=(("ai.onnx.ml", "TreeEnsembleClassifier"),)),
        ),
    ),
    added(
        "accelerator-unknown",
        f'optimization {{ execution_accelerators {{\n  gpu_execution_accelerator {{ name: "openvino" }} {HERE}\n}} }}\n',
        'optimization { execution_accelerators {\n  gpu_execution_accelerator { name: "tensorrt" }\n} }\n',
    ),
    added(
        "parameter-not-integer",
        f'parameters {{ key: "intra_op_thread_count" value {{ string_value: "four" }} }} {HERE}\n',
        'parameters { key: "intra_op_thread_count" value { string_value: "4" } }\n',
    ),
    added(
        "parameter-out-of-range",
        f'parameters {{ key: "execution_mode" value {{ string_value: "2" }} }} {HERE}\n',
        'parameters { key: "execution_mode" value { string_value: "1" } }\n',
    ),
    added(
        "parameter-not-boolean",
        f'parameters {{ key: "enable_mem_arena" value {{ string_value: "yes" }} }} {HERE}\n',
        'parameters { key: "enable_mem_arena" value { string_value: "True" } }\n',
    ),
    added(
        "parameter-misspelt",
        f'parameters {{ key: "intra_op_threads_count" value {{ string_value: "4" }} }} {HERE}\n',
        'parameters { key: "my own note" value { string_value: "4" } }\n',
    ),
    added(
        "op-library-relative",
        f'model_operations {{ op_library_filename: "./libops.so" }} {HERE}\n',
        'model_operations { op_library_filename: "/opt/libops.so" }\n',
    ),
    added(
        "op-library-search",
        f'model_operations {{ op_library_filename: "libops.so" }} {HERE}\n',
        'model_operations { op_library_filename: "libothers.so" }\n',
        more={"m/libops.so": b"library"},
    ),
    added(
        "op-library-unread",
        f'model_operations {{ op_library_filename: "libops.so" }} {HERE}\n',
        base=PLAIN.replace("onnxruntime", "tensorrt") + "instance_group { kind: KIND_GPU }\n",
        make=lambda c: {"m/config.pbtxt": c, "m/1/model.plan": b"p"},
    ),
    added(
        "environment-missing",
        f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" }} }} {HERE}\n',
        base=FREE,
        make=s.python,
    ),
    *(
        added(
            "runtime-missing",
            f'runtime: "{name}" {HERE}\n',
            f'runtime: "{right}"\n',
            base=FREE,
            make=s.python,
            more={"m/1/lib/own.so": b"x", "m/own.so": b"x"},
        )
        for name, right in (
            ("x/y.so", "lib/own.so"),
            ("libtriton_onnxruntime.so", "libtriton_python.so"),
            ("../m/own.so", "own.so"),
        )
    ),
    # Versions
    same("version-none", {"m/config.pbtxt": PLAIN}, s.onnx(), ("m/config.pbtxt", 1)),
    added(
        "version-none",
        f"version_policy {{ latest {{ num_versions: 0 }} }} {HERE}\n",
        "version_policy { latest { num_versions: 1 } }\n",
    ),
    added(
        "version-missing",
        f"version_policy {{ specific {{ versions: [\n1,\n3 {HERE}\n] }} }}\n",
        "version_policy { specific { versions: 1 } }\n",
    ),
    same(
        "version-leading-zero",
        s.onnx() | {"m/02/model.onnx": s.graph()},
        s.onnx() | {"m/2/model.onnx": s.graph()},
        "m/02",
    ),
    same(
        "version-not-number",
        s.onnx() | {"m/old/model.onnx": s.graph()},
        s.onnx() | {"m/docs/readme.md": "x"},
        "m/old",
    ),
    same("version-number-prefix", s.onnx() | {"m/2_new/model.onnx": s.graph()}, s.onnx(), "m/2_new"),
    same("version-not-number", s.onnx() | {"m/1_old/model.onnx": s.graph()}, s.onnx(), "m/1_old"),
    *(
        same("version-number-large", s.onnx() | {f"m/{name}/a": "x"}, s.onnx() | right, f"m/{name}")
        for name, right in (
            ("99999999999999999999", {"m/0_99999999999999999999/a": "x"}),
            ("9223372036854775808", {"m/9223372036854775807/model.onnx": s.graph()}),
            ("9223372036854775808_old", {}),
            ("9" * 200, {}),
        )
    ),
    added(
        "metric-tag-name",
        f'metric_tags {{ key: "my-team" value: "a" }} {HERE}\n',
        'metric_tags { key: "my_team" value: "a-b c" }\n',
    ),
    added(
        "agents-empty",
        f"model_repository_agents {{ }} {HERE}\n",
        'model_repository_agents { agents { name: "checksum" } }\n',
    ),
    *(
        swap("config-unreadable", old, f"{new} {HERE}\n", right, base=FREE, make=s.python)
        for old, new, right in (
            ("dims: [2]", "dims: [ +2 ]", "dims: [ - # any\n 1 ]"),
            ("max_batch_size: 8", "max_batch_size: 0b1", "max_batch_size: 010"),
            (
                "max_batch_size: 8",
                "max_batch_size: 1_0",
                "max_batch_size: 0x10 response_cache { enable: 0x1 }",
            ),
            ("TYPE_FP32\n  dims: [2]", "TYPE_FP32 optional: 0b1 dims: [2]", "013 optional: 01 dims: [2]"),
            ('"x"', '"\\q"', '"\\ud83d\\ude00 \\303\\251 \\?"'),
        )
    ),
    *(
        swap("config-not-text", '"x"', f'"{escape}" {HERE}', base=FREE, make=s.python)
        for escape in ("\\377", "\\ud800", "\\xff")
    ),
    same(
        "tensor-dim-invalid",
        s.python(FREE.replace('"x"', "'\\ud83d\\ude00'").replace("[2]", f"[ - # one\n1, -\n2 {HERE}\n]")),
        s.python(FREE.replace('"x"', '"\\U00110000"')),
    ),
    swap("config-character", "max_batch_size: 8", f"max_batch_size:\xa08 {HERE}"),
    added("config-character", f"{HERE} \x00\n", "# \xa0 \x1b in a comment\n"),
    same("dot-folder", s.onnx() | {".git/HEAD": "x", ".git/1/y": ""}, s.onnx() | {"README.md": "x"}, ".git"),
    same("config-misplaced", s.onnx() | {"m/1/config.pbtxt": PLAIN}, s.onnx(), "m/1/config.pbtxt"),
    same(
        "model-file-misplaced",
        {"m/config.pbtxt": FREE, "m/1/readme.md": "x", "m/model.py": s.PYTHON},
        s.python() | {"m/helper.py": "x = 1\n"},
        "m/model.py",
    ),
    Case(
        "field-newer",
        s.python(FREE + f"model_metrics {{ }} {HERE}\n"),
        s.python(),
        target="24.10",
    ),
    Case(
        "field-newer",
        torch(TORCH.replace('backend: "pytorch"', f'platform: "torch_aoti" {HERE}'))
        | {"m/1/model.pt2": SCRIPT},
        torch(),
        target="26.02",
    ),
    added(
        "metrics-incomplete",
        "model_metrics {\n  metric_control { " + HERE + '\n    metric_identifier { family: "a" }\n  }\n}\n',
        'model_metrics { metric_control { metric_identifier { family: "a" } histogram_options { buckets: 1 } } }\n',
    ),
    same(
        "version-empty",
        s.onnx(version="2") | {"m/1": None},
        s.onnx(version="2") | {"m/1/model.onnx": s.graph()},
        "m/1",
    ),
    same(
        "versions-differ",
        s.onnx(version="2") | {"m/1/model.onnx": s.graph((("x", "FLOAT", ("batch", 5)),))},
        s.onnx(version="2") | {"m/1/model.onnx": s.graph()},
        "m/1/model.onnx",
    ),
    # Model files
    same("model-file-missing", {"m/config.pbtxt": PLAIN, "m/1/readme.md": "x"}, s.onnx(), "m/1"),
    same("model-file-misnamed", {"m/config.pbtxt": PLAIN, "m/1/net.onnx": s.graph()}, s.onnx(), "m/1"),
    same(
        "model-file-misnamed",
        s.onnx(PLAIN + f'default_model_filename: "net.onnx" {HERE}\n'),
        s.onnx(PLAIN + 'default_model_filename: "net.onnx"\n') | {"m/1/net.onnx": s.graph()},
    ),
    same(
        "model-file-misplaced", {"m/config.pbtxt": PLAIN, "m/model.onnx": s.graph()}, s.onnx(), "m/model.onnx"
    ),
    same("model-file-empty", {"m/config.pbtxt": PLAIN, "m/1/model.onnx": b""}, s.onnx(), "m/1/model.onnx"),
    added("model-file-path", f'default_model_filename: "../model.onnx" {HERE}\n'),
    same(
        "file-lfs-pointer",
        s.onnx(model=b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"),
        s.onnx(),
        "m/1/model.onnx",
    ),
    same("file-is-web-page", s.onnx(model=b"\n<!DOCTYPE html><html></html>"), s.onnx(), "m/1/model.onnx"),
    # ONNX
    same("onnx-invalid", s.onnx(model=b"this is no model"), s.onnx(), "m/1/model.onnx"),
    same("onnx-truncated", s.onnx(model=s.graph()[:-20]), s.onnx(), "m/1/model.onnx"),
    same(
        "onnx-opset-newer",
        s.onnx(model=s.graph(opset=22)),
        s.onnx(model=s.graph(opset=21)),
        "m/1/model.onnx",
        "24.10",
    ),
    same(
        "onnx-opset-newer",
        s.onnx(model=s.graph(ml=4)),
        s.onnx(model=s.graph(ml=3)),
        "m/1/model.onnx",
        "23.10",
    ),
    same(
        "onnx-ir-newer", s.onnx(model=s.graph(ir=11)), s.onnx(model=s.graph(ir=10)), "m/1/model.onnx", "24.10"
    ),
    same("onnx-opset-old", s.onnx(model=s.graph(opset=6)), s.onnx(model=s.graph(opset=7)), "m/1/model.onnx"),
    same(
        "onnx-domain-unknown",
        s.onnx(model=s.graph(nodes=(("my.ops", "Twist"),))),
        s.onnx(model=s.graph(nodes=(("com.microsoft", "Gelu"),))),
        "m/1/model.onnx",
    ),
    same(
        "onnx-not-tensor",
        s.onnx(model=s.graph(outputs=(("y", "FLOAT", ("batch", 3)), ("p", "SEQUENCE", None)))),
        s.onnx(model=s.graph(outputs=(("y", "FLOAT", ("batch", 3)), ("p", "FLOAT", ("batch", 2))))),
        "m/1/model.onnx",
    ),
    same(
        "onnx-type-unserved",
        s.onnx(model=s.graph(outputs=(("y", "FLOAT", ("batch", 3)), ("p", "COMPLEX64", ("batch", 3))))),
        s.onnx(model=s.graph(outputs=(("y", "FLOAT", ("batch", 3)), ("p", "FLOAT16", ("batch", 3))))),
        "m/1/model.onnx",
    ),
    same(
        "onnx-bf16",
        s.onnx(
            PLAIN.replace("TYPE_FP32\n  dims: [3]", "TYPE_BF16\n  dims: [3]"),
            s.graph(outputs=(("y", "BFLOAT16", ("batch", 3)),)),
        ),
        s.onnx(),
        "m/1/model.onnx",
    ),
    same(
        "onnx-input-count",
        s.onnx(
            PLAIN.replace("input {", f"input {{ {HERE}"),
            s.graph((("x", "FLOAT", ("batch", 2)), ("u", "FLOAT", ("batch", 1)))),
        ),
        s.onnx(),
    ),
    swap("onnx-input-unknown", '  name: "x"', f'  name: "X" {HERE}'),
    swap("onnx-output-unknown", '  name: "y"', f'  name: "yy" {HERE}'),
    swap("onnx-type-mismatch", "TYPE_FP32\n  dims: [2]", f"TYPE_FP64 {HERE}\n  dims: [2]"),
    swap("onnx-type-mismatch", "TYPE_FP32\n  dims: [3]", f"TYPE_INT64 {HERE}\n  dims: [3]"),
    swap("onnx-input-dims", "  dims: [2]", f"  dims: [-1, 2] {HERE}"),
    swap("onnx-input-dims", "  dims: [2]", f"  dims: [-1] {HERE}"),
    swap("onnx-output-dims", "  dims: [3]", f"  dims: [-1] {HERE}"),
    same(
        "onnx-output-dims-unsure",
        s.onnx(
            PLAIN.replace("  dims: [3]", f"  dims: [3] {HERE}"),
            s.graph(outputs=(("y", "FLOAT", ("batch", "width")),)),
        ),
        s.onnx(
            PLAIN.replace("  dims: [3]", "  dims: [-1]"),
            s.graph(outputs=(("y", "FLOAT", ("batch", "width")),)),
        ),
    ),
    same(
        "onnx-not-batchable",
        s.onnx(PLAIN.replace("  dims: [2]", f"  dims: [2] {HERE}"), s.graph((("x", "FLOAT", (1, 2)),))),
        s.onnx(),
    ),
    same(
        "onnx-not-batchable",
        s.onnx(PLAIN.replace("[3]", f"[1] {HERE}\n"), s.graph(outputs=(("y", "FLOAT", ()),))),
        s.onnx(PLAIN.replace("[3]", "[1]"), s.graph(outputs=(("y", "FLOAT", ("batch", 1)),))),
    ),
    same(
        "onnx-scalar-dims",
        s.onnx(
            UNBATCHED.replace("[4, 3]", f"[3] {HERE}\n"),
            s.graph((("x", "FLOAT", (4, 2)),), (("y", "FLOAT", ()),)),
        ),
        s.onnx(UNBATCHED.replace("[4, 3]", "[1]"), s.graph((("x", "FLOAT", (4, 2)),), (("y", "FLOAT", ()),))),
    ),
    same(
        "onnx-output-dims",
        s.onnx(PLAIN.replace("  dims: [3]", f"  dims: [1] {HERE}"), SCALAR),
        s.onnx(PLAIN.replace("  dims: [3]", "  dims: [1]\n  reshape { shape: [] }"), SCALAR),
    ),
    swap("onnx-ragged-shape", "  dims: [2]", f"  dims: [2]\n  allow_ragged_batch: true {HERE}"),
    swap("onnx-optional-input", "  dims: [2]", f"  dims: [2]\n  optional: true {HERE}"),
    same(
        "onnx-auto-batch",
        s.onnx(ONNX_FREE + f"max_batch_size: 0 {HERE}\n"),
        s.onnx(ONNX_FREE + "max_batch_size: 8\n"),
    ),
    same(
        "onnx-auto-batch",
        {"m/1/model.onnx": s.graph((("x", "FLOAT", ("words", 2)),), (("y", "FLOAT", ("words", 3)),))},
        {"m/1/model.onnx": s.graph()},
        "m",
    ),
    *(
        same(
            "onnx-auto-batch",
            s.onnx(ONNX_FREE + f"max_batch_size: 0 {HERE}\n", named),
            s.onnx(ONNX_FREE, named),
        )
        for word in ("N", "batch_size", "Samples")
        for named in (s.graph((("x", "FLOAT", (word, 2)),), (("y", "FLOAT", (word, 3)),)),)
    ),
    same(
        "onnx-auto-batch-impossible",
        s.onnx(ONNX_FREE + f"max_batch_size: 8 {HERE}\n", FIXED),
        s.onnx(ONNX_FREE, FIXED),
    ),
    same("external-missing", external(), external() | {"m/1/weights.bin": b"12345678"}, "m/1/model.onnx"),
    same(
        "external-short",
        external() | {"m/1/weights.bin": b"1234"},
        external() | {"m/1/weights.bin": b"12345678"},
        "m/1/model.onnx",
    ),
    same(
        "external-absolute",
        external("/etc/passwd"),
        external() | {"m/1/weights.bin": b"12345678"},
        "m/1/model.onnx",
    ),
    same(
        "external-escapes",
        external("../../n/1/weights.bin") | {"m/1/a": b"1"},
        external("./weights.bin") | {"m/1/weights.bin": b"12345678"},
        "m/1/model.onnx",
    ),
    # TensorRT
    swap("cc-key-invalid", 'key: "8.6"', f'key: "sm86" {HERE}', base=PLAN, make=plan),
    swap("cc-file-missing", 'value: "sm86.plan"', f'value: "sm89.plan" {HERE}', base=PLAN, make=plan),
    same(
        "cc-fallback",
        plan(PLAN.replace("cc_model_filenames {", f"cc_model_filenames {{ {HERE}"))
        | {"m/1/model.plan": b"p"},
        plan(),
    ),
    added(
        "cc-without-gpu",
        f'cc_model_filenames {{ key: "8.6" value: "model.onnx" }} {HERE}\ninstance_group {{ kind: KIND_CPU }}\n',
        "instance_group { kind: KIND_CPU }\n",
    ),
    added(
        "cc-without-gpu",
        f'cc_model_filenames {{ key: "8.6" value: "none.onnx" }} {HERE}\ninstance_group {{ kind: KIND_CPU }}\n',
        "instance_group { kind: KIND_CPU }\n",
    ),
    added(
        "cc-without-gpu",
        f'cc_model_filenames {{ key: "any" value: "none.py" }} {HERE}\n',
        base=FREE,
        make=s.python,
    ),
    # PyTorch
    same("torch-not-archive", torch(file=b"\x80\x02pickled"), torch(), "m/1/model.pt"),
    same("torch-not-archive", torch(file=SCRIPT[:-30]), torch(), "m/1/model.pt"),
    same(
        "torch-not-script",
        torch(file=s.zipped("m/data.pkl", "m/data/0", "m/version")),
        torch(),
        "m/1/model.pt",
    ),
    same("torch-outputs-missing", torch(TORCH.partition("output {")[0]), torch(), ("m/config.pbtxt", 1)),
    swap(
        "torch-names-mixed",
        "output {",
        f'input {{\n  name: "mask" {HERE}\n  data_type: TYPE_BOOL\n  dims: [2]\n}}\noutput {{',
        'input {\n  name: "INPUT__1"\n  data_type: TYPE_BOOL\n  dims: [2]\n}\noutput {',
        base=TORCH,
        make=torch,
    ),
    same(
        "torch-names-mixed",
        torch(
            TORCH.replace(
                "output {", 'input {\n  name: "a__b__1"\n  data_type: TYPE_BOOL\n  dims: [2]\n}\noutput {'
            )
        ),
        torch(
            TORCH.replace(
                "output {", 'input {\n  name: "ab__1"\n  data_type: TYPE_BOOL\n  dims: [2]\n}\noutput {'
            )
        ),
        ("m/config.pbtxt", 9),
    ),
    swap("torch-index", '"INPUT__0"', f'"INPUT__1" {HERE}', base=TORCH, make=torch),
    # Python
    same("python-syntax", s.python(source=s.PYTHON + f"def broken( {HERE}\n"), s.python(), target="24.10"),
    same(
        "python-class-missing", s.python(source="class Model:\n    pass\n"), s.python(), ("m/1/model.py", 1)
    ),
    same(
        "python-execute-missing",
        s.python(
            source=s.PYTHON.replace("def execute", "def run").replace(
                "TritonPythonModel:", f"TritonPythonModel: {HERE}"
            )
        ),
        s.python(),
    ),
    same(
        "python-execute-arguments",
        s.python(source=s.PYTHON.replace("(self, requests):", f"(self): {HERE}")),
        s.python(source=s.PYTHON.replace("(self, requests):", "(self, requests, more=None):")),
    ),
    *(
        same(
            rule,
            s.python(source=f"{s.PYTHON}\n    def {rule.split('-')[1]}{wrong}: {HERE}\n        pass\n"),
            s.python(source=f"{s.PYTHON}\n    def {rule.split('-')[1]}{right}:\n        pass\n"),
        )
        for rule, wrong, right in (
            ("python-initialize-arguments", "(self)", "(self, args)"),
            ("python-initialize-arguments", "()", "(*args)"),
            ("python-initialize-arguments", "(self, args, more)", "(self, args, more=None)"),
            ("python-initialize-arguments", "(self, args, *, more)", "(self, args, *, more=None, **others)"),
            ("python-finalize-arguments", "(self, args)", "(self)"),
            ("python-finalize-arguments", "()", "(self, args=None)"),
        )
    ),
    same("python-tensors-missing", s.python('backend: "python"\n'), s.python(), ("m/config.pbtxt", 1)),
    # Ensembles
    swap(
        "ensemble-platform",
        'platform: "ensemble"',
        f'platform: "ensemble"\nbackend: "python" {HERE}',
        base=ENSEMBLE,
        make=ensemble,
    ),
    same(
        "ensemble-scheduling-missing",
        {"m/config.pbtxt": f'platform: "ensemble" {HERE}\n', "m/1": None} | MEMBERS,
        ensemble(),
    ),
    swap(
        "ensemble-field",
        "max_batch_size: 8",
        f"max_batch_size: 8\ninstance_group {{ count: 1 }} {HERE}",
        base=ENSEMBLE,
        make=ensemble,
    ),
    same(
        "ensemble-step-missing",
        ensemble(ENSEMBLE.partition("ensemble_scheduling")[0] + f"ensemble_scheduling {{ }} {HERE}\n"),
        ensemble(),
    ),
    swap(
        "ensemble-map-missing",
        '    output_map {\n      key: "y"\n      value: "score"\n    }\n',
        "",
        base=ENSEMBLE.replace('  step {\n    model_name: "b"', f'  step {{ {HERE}\n    model_name: "b"'),
        make=ensemble,
    ),
    swap(
        "ensemble-output-twice",
        'value: "score"',
        f'value: "score"\n    }}\n    output_map {{\n      key: "z"\n      value: "middle" {HERE}',
        base=ENSEMBLE,
        make=lambda c: (
            {"m/config.pbtxt": c, "m/1": None}
            | s.python(MEMBER, name="a")
            | s.python(MEMBER + 'output { name: "z" data_type: TYPE_FP32 dims: 2 }\n', name="b")
        ),
    ),
    swap(
        "ensemble-input-unused",
        "output {\n",
        f'input {{\n  name: "spare" {HERE}\n  data_type: TYPE_FP32\n  dims: 2\n}}\noutput {{\n',
        base=ENSEMBLE,
        make=ensemble,
    ),
    swap(
        "ensemble-output-unwritten",
        "ensemble_scheduling {",
        f'output {{\n  name: "other" {HERE}\n  data_type: TYPE_FP32\n  dims: 2\n}}\nensemble_scheduling {{',
        base=ENSEMBLE,
        make=ensemble,
    ),
    swap(
        "ensemble-tensor-unused",
        'value: "score"',
        f'value: "score"\n    }}\n    output_map {{\n      key: "z"\n      value: "left over" {HERE}',
        base=ENSEMBLE,
        make=lambda c: (
            {"m/config.pbtxt": c, "m/1": None}
            | s.python(MEMBER, name="a")
            | s.python(MEMBER + 'output { name: "z" data_type: TYPE_FP32 dims: 2 }\n', name="b")
        ),
    ),
    swap(
        "ensemble-model-unknown", 'model_name: "b"', f'model_name: "c" {HERE}', base=ENSEMBLE, make=ensemble
    ),
    swap(
        "ensemble-version-missing",
        'model_name: "b"\n    model_version: -1',
        f'model_name: "b"\n    model_version: 7 {HERE}',
        'model_name: "b"\n    model_version: 1',
        base=ENSEMBLE,
        make=ensemble,
    ),
    *(
        swap(
            "ensemble-version-missing",
            'model_name: "b"\n    model_version: -1',
            f'model_name: "b"\n    model_version: {number} {HERE}',
            base=ENSEMBLE,
            make=ensemble,
        )
        for number in (0, -2, -9223372036854775808)
    ),
    same(
        "ensemble-version-missing",
        ensemble(
            ENSEMBLE.replace(
                '  step {\n    model_name: "b"\n    model_version: -1',
                f'  step {{ {HERE}\n    model_name: "b"',
            )
        ),
        ensemble(ENSEMBLE.replace('"b"\n    model_version: -1', '"b"'))
        | {"b/0/model.py": s.PYTHON, "b/1/model.py": s.PYTHON}
        | {"b/config.pbtxt": MEMBER + "version_policy { all { } }\n"},
    ),
    swap(
        "ensemble-member-output",
        'key: "y"\n      value: "middle"',
        f'key: "yy" {HERE}\n      value: "middle"',
        base=ENSEMBLE,
        make=ensemble,
    ),
    swap(
        "ensemble-batch",
        "max_batch_size: 8",
        f"max_batch_size: 16 {HERE}",
        base=ENSEMBLE,
        make=lambda c: ensemble(c) | s.python(MEMBER.replace("size: 8", "size: 32"), name="b"),
    ),
    swap(
        "ensemble-member-input",
        'key: "x"\n      value: "raw"',
        f'key: "x"\n      value: "raw"\n    }}\n    input_map {{\n      key: "xx" {HERE}\n      value: "raw"',
        base=ENSEMBLE,
        make=ensemble,
    ),
    same(
        "ensemble-cycle",
        ensemble(
            ENSEMBLE.replace('  step {\n    model_name: "a"', f'  step {{ {HERE}\n    model_name: "a"')
            .replace(
                'key: "x"\n      value: "raw"',
                'key: "x"\n      value: "raw"\n    }\n    input_map {\n      key: "back"\n      value: "again"',
            )
            .replace(
                'key: "y"\n      value: "score"',
                'key: "y"\n      value: "score"\n    }\n    output_map {\n      key: "z"\n      value: "again"',
            )
        )
        | s.python(MEMBER + 'input { name: "back" data_type: TYPE_FP32 dims: 2 }\n', name="a")
        | s.python(MEMBER + 'output { name: "z" data_type: TYPE_FP32 dims: 2 }\n', name="b"),
        ensemble(),
    ),
    same(
        "ensemble-type",
        ensemble(
            ENSEMBLE.replace(
                'value: "middle"\n    }\n    output_map {\n      key: "y"\n      value: "score"',
                f'value: "middle" {HERE}\n    }}\n    output_map {{\n      key: "y"\n      value: "score"',
            )
        )
        | s.python(MEMBER.replace("TYPE_FP32", "TYPE_INT64", 1), name="b"),
        ensemble(),
    ),
    same(
        "ensemble-shape",
        ensemble(
            ENSEMBLE.replace(
                'value: "middle"\n    }\n    output_map {\n      key: "y"\n      value: "score"',
                f'value: "middle" {HERE}\n    }}\n    output_map {{\n      key: "y"\n      value: "score"',
            )
        )
        | s.python(MEMBER.replace("[2]", "[5]", 1), name="b"),
        ensemble() | s.python(MEMBER.replace("[2]", "[-1]", 1), name="b"),
    ),
    same(
        "ensemble-member-unmapped",
        ensemble(
            ENSEMBLE.replace(
                '"a"\n    model_version: -1\n    input_map {',
                f'"a"\n    model_version: -1\n    input_map {{ {HERE}',
            )
        )
        | s.python(MEMBER + 'input { name: "u" data_type: TYPE_FP32 dims: 1 }\n', name="a"),
        ensemble()
        | s.python(MEMBER + 'input { name: "u" data_type: TYPE_FP32 dims: 1 optional: true }\n', name="a"),
    ),
    # Warm-up and labels
    swap(
        "warmup-file-missing",
        'input_data_file: "row"',
        f'input_data_file: "raw" {HERE}',
        base=WARM,
        make=warm,
    ),
    same(
        "warmup-file-short",
        s.onnx(WARM.replace('"row"', f'"row" {HERE}\n')) | {"m/warmup/row": b"1234"},
        warm(),
    ),
    same(
        "warmup-file-long",
        s.onnx(WARM.replace('"row"', f'"row" {HERE}\n')) | {"m/warmup/row": b"123456789012"},
        warm(),
    ),
    *(
        same(
            "warmup-text",
            s.onnx(TEXT_WARM.replace('"row"', f'"row" {HERE}\n'), TEXT_GRAPH) | {"m/warmup/row": data},
            s.onnx(TEXT_WARM, TEXT_GRAPH) | {"m/warmup/row": TEXTS},
        )
        for data in (b"ab", TEXTS[:-1], TEXTS + TEXTS, b"\xff\xff\xff\xffab", b"")
        if data
    ),
    swap("warmup-dims-variable", "      dims: 2", f"      dims: -1 {HERE}", base=WARM, make=warm),
    same(
        "warmup-dims-unfit",
        s.onnx(WARM.replace("      dims: 2", f"      dims: [1, 2] {HERE}")) | ROW,
        warm(),
    ),
    swap(
        "warmup-type",
        "      data_type: TYPE_FP32",
        f"      data_type: TYPE_INT32 {HERE}",
        base=WARM,
        make=warm,
    ),
    swap(
        "warmup-data-missing",
        '      input_data_file: "row"\n',
        "",
        base=WARM.replace("    value {", f"    value {{ {HERE}"),
        make=warm,
    ),
    same(
        "warmup-input-missing",
        s.python(
            (WARM + 'input { name: "u" data_type: TYPE_FP32 dims: 1 }\n')
            .replace("onnxruntime", "python")
            .replace("model_warmup {", f"model_warmup {{ {HERE}")
        )
        | ROW,
        s.python(
            (WARM + 'input { name: "u" data_type: TYPE_FP32 dims: 1 optional: true }\n').replace(
                "onnxruntime", "python"
            )
        )
        | ROW,
    ),
    same(
        "warmup-input-unknown",
        warm(
            WARM
            + f'model_warmup {{\n  name: "v" batch_size: 1\n  inputs {{ key: "x" value {{ data_type: TYPE_FP32 dims: 2 zero_data: true }} }}\n  inputs {{ key: "u" value {{ data_type: TYPE_FP32 dims: 2 zero_data: true }} }} {HERE}\n}}\n'
        ),
        warm(),
    ),
    swap("warmup-batch-large", "  batch_size: 8\n", f"  batch_size: 9 {HERE}\n", base=WARM, make=warm),
    swap("warmup-batch-zero", "  batch_size: 8\n", f"  batch_size: 0 {HERE}\n", base=WARM, make=warm),
    swap(
        "warmup-random-floats",
        '      input_data_file: "row"',
        f"      random_data: true {HERE}",
        "      zero_data: true",
        base=WARM,
        make=warm,
    ),
    same(
        "warmup-random-integers",
        s.python(
            WARM.replace("onnxruntime", "python")
            .replace("FP32", "INT64")
            .replace('      input_data_file: "row"', f"      random_data: true {HERE}")
        ),
        s.python(
            WARM.replace("onnxruntime", "python")
            .replace("FP32", "INT64")
            .replace('      input_data_file: "row"', "      zero_data: true")
        ),
    ),
    swap("label-file-missing", '"labels.txt"', f'"classes.txt" {HERE}\n', base=LABELLED, make=labelled),
    same(
        "label-count",
        labelled(LABELLED.replace('"labels.txt"', f'"labels.txt" {HERE}\n'), "a\nb\n"),
        labelled(),
    ),
    same(
        "label-line-end",
        labelled(labels="a\r\nb\r\nc\r\n"),
        labelled(labels="a\rb\nb\nc"),
        ("m/labels.txt", 1),
    ),
    same("label-line-end", labelled(labels="a\nb\nc\r"), labelled(labels="a\nb\nc"), ("m/labels.txt", 3)),
    same("label-line-empty", labelled(labels="a\n\nc\n"), labelled(), ("m/labels.txt", 2)),
    # Layout
    same("file-empty", s.onnx() | {"m/notes.txt": b""}, s.onnx() | {"m/notes.txt": b"x"}, "m/notes.txt"),
    same("dot-file", s.onnx() | {"m/1/.DS_Store": b"x"}, s.onnx(), "m/1/.DS_Store"),
    same(
        "name-unsafe", s.onnx() | {"m/read me.txt": b"x"}, s.onnx() | {"m/read_me.txt": b"x"}, "m/read me.txt"
    ),
    same("name-unsafe", s.onnx() | {"m/-rf": b"x"}, s.onnx(), "m/-rf"),
    same(
        "name-case-clash",
        s.onnx() | {"m/A.txt": b"x", "m/a.txt": b"x"},
        s.onnx() | {"m/a.txt": b"x"},
        "m/a.txt",
    ),
    same("repository-nested", {f"all/{k}": v for k, v in s.onnx().items()}, s.onnx(), "all"),
]


def _id(case):
    return case.rule


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_a_planted_mistake_is_found_where_it_stands(repository, told, case):
    """Exactly one finding, of this rule, in this file, on this line."""
    place = case.at
    if place is None:
        (place,) = s.places(case.wrong)
    expected = place if isinstance(place, tuple) else (place, None)
    assert told(repository(case.wrong), case.target) == [(case.rule, *expected)]


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_the_right_counterpart_is_silent(repository, told, case):
    """Nothing at all is said about what is right."""
    assert told(repository(case.right), case.target) == []


@pytest.mark.parametrize("name", ["my model", "a;b", "it's", "a(1)", "$HOME"])
def test_a_python_model_that_bash_cannot_name_is_an_error(repository, told, name):
    """Its folder or file is an odd name for every model, and the end of a python model."""
    wrong = s.python(name=name)
    assert told(repository(wrong)) == [("name-unsafe", name, None), ("python-path-shell", name, None)]
    assert told(repository(s.onnx(name=name), "other")) == [("name-unsafe", name, None)]
    file = s.python(FREE + f'default_model_filename: "{name}" {HERE}\n') | {f"m/1/{name}": s.PYTHON}
    line = s.places(file)[0]
    found = [("name-unsafe", f"m/1/{name}", None), ("python-path-shell", *line)]
    assert told(repository(file, "file")) == found
