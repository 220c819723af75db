"""Whole repositories in many styles, all right: lint says nothing."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("lint_samples_right", Path(__file__).with_name("samples.py"))
s = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(s)

COMPACT = """
# everything on few lines
platform: "onnxruntime_onnx" max_batch_size: 8;
input [ { name: 'x', data_type: TYPE_FP32, dims: [ 2 ] } ],
output <name:"y" data_type:TYPE_FP32 dims:3>
instance_group[{kind:KIND_CPU count:2}] dynamic_batching { preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 100 }
parameters: { key: "intra_op_thread_count" value: { string_value: "1" } }
"""
DENSENET = """name: "densenet_onnx"
platform: "onnxruntime_onnx"
max_batch_size : 0
input [
  {
    name: "data_0"
    data_type: TYPE_FP32
    format: FORMAT_NCHW
    dims: [ 3, 224, 224 ]
    reshape { shape: [ 1, 3, 224, 224 ] }
  }
]
output [
  {
    name: "fc6_1"
    data_type: TYPE_FP32
    dims: [ 1000 ]
    reshape { shape: [ 1, 1000, 1, 1 ] }
    label_filename: "densenet_labels.txt"
  }
]
"""
ADD_SUB = """name: "add_sub"
backend: "python"

input [
  {
    name: "INPUT0"
    data_type: TYPE_FP32
    dims: [ 4 ]
  }
]
input [
  {
    name: "INPUT1"
    data_type: TYPE_FP32
    dims: [ 4 ]
  }
]
output [
  {
    name: "OUTPUT0"
    data_type: TYPE_FP32
    dims: [ 4 ]
  }
]
instance_group [{ kind: KIND_CPU }]
"""
ENSEMBLE = """name: "pipeline"
platform: "ensemble"
max_batch_size: 8
input [ { name: "IMAGE" data_type: TYPE_UINT8 dims: [ -1 ] } ]
output [ { name: "SCORE" data_type: TYPE_FP32 dims: [ 3 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "decode" model_version: -1
      input_map { key: "bytes" value: "IMAGE" }
      output_map { key: "pixels" value: "pixels" }
    },
    {
      model_name: "classify" model_version: -1
      input_map { key: "x" value: "pixels" }
      output_map { key: "y" value: "SCORE" }
    }
  ]
}
"""
DECODE = """backend: "python" max_batch_size: 8
input { name: "bytes" data_type: TYPE_UINT8 dims: -1 }
output { name: "pixels" data_type: TYPE_FP32 dims: 2 }
"""
TENSORRT = """platform: "tensorrt_plan"
max_batch_size: 16
input { name: "x" data_type: TYPE_FP16 dims: [ 3, 224, 224 ] }
output { name: "y" data_type: TYPE_FP16 dims: 1000 }
cc_model_filenames { key: "7.5" value: "model_sm75.plan" }
cc_model_filenames { key: "12.0" value: "model_sm120.plan" }
instance_group { kind: KIND_GPU gpus: [ 0, 1 ] profile: "0" }
"""
STRINGS = """backend: "onnxruntime" max_batch_size: 4
input { name: "text" data_type: TYPE_STRING dims: 1 }
output { name: "y" data_type: TYPE_INT64 dims: 1 }
model_warmup {
  name: "words" batch_size: 2
  inputs { key: "text" value { data_type: TYPE_STRING dims: 1 input_data_file: "word" } }
}
"""
RAGGED = """backend: "onnxruntime" max_batch_size: 16
input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
batch_input {
  kind: BATCH_ACCUMULATED_ELEMENT_COUNT
  target_name: "index" data_type: TYPE_FP32 source_input: "x"
}
dynamic_batching { max_queue_delay_microseconds: 500 }
"""
SEQUENCE = """backend: "onnxruntime" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 1 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  direct { }
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } ] }
  ]
  state [
    { input_name: "s_in" output_name: "s_out" data_type: TYPE_FP32 dims: 4
      initial_state { name: "zeros" data_type: TYPE_FP32 dims: 4 data_file: "zeros" } },
    { input_name: "t_in" output_name: "t_out" data_type: TYPE_FP32 dims: -1
      initial_state { name: "none" data_type: TYPE_FP32 dims: 2 zero_data: true } }
  ]
}
"""
SCALAR = """backend: "onnxruntime" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 1 reshape { shape: [] } }
output { name: "y" data_type: TYPE_FP32 dims: 1 reshape { } }
"""
TORCH = """platform: "pytorch_libtorch" max_batch_size: 8
input [ { name: "INPUT__0" data_type: TYPE_FP32 dims: [ 3, -1, -1 ] }, { name: "INPUT__1" data_type: TYPE_INT64 dims: 1 } ]
output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: 10 }
parameters { key: "INFERENCE_MODE" value { string_value: "true" } }
"""
FORWARD = """backend: "pytorch" max_batch_size: 8
input { name: "pixels" data_type: TYPE_FP32 dims: [ 3, -1, -1 ] }
output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: 10 }
"""
DECOUPLED = ADD_SUB.replace("add_sub", "tokens") + "model_transaction_policy { decoupled: true }\n"
SELF_COMPLETING = (
    s.PYTHON
    + """
    @staticmethod
    def auto_complete_config(config):
        return config
"""
)
VERSIONS = s.PLAIN + "version_policy: { specific { versions: [ 1, 3 ] } }\n"
PRIORITIES = (
    s.PLAIN
    + """dynamic_batching {
  priority_levels: 3
  default_priority_level: 2
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 1000 allow_timeout_override: true max_queue_size: 100 }
  priority_queue_policy { key: 1 value { default_timeout_microseconds: 0 max_queue_size: 10 } }
}
response_cache { enable: true }
"""
)
GRAPHS = {
    "densenet": s.graph((("data_0", "FLOAT", (1, 3, 224, 224)),), (("fc6_1", "FLOAT", (1, 1000, 1, 1)),)),
    "strings": s.graph((("text", "STRING", ("batch", 1)),), (("y", "INT64", ("batch", 1)),)),
    "ragged": s.graph((("x", "FLOAT", ("n",)), ("index", "FLOAT", ("b",))), (("y", "FLOAT", ("b", 1)),)),
    "sequence": s.graph(
        tuple(
            (n, "FLOAT", ("batch", w))
            for n, w in (("x", 1), ("START", 1), ("READY", 1), ("s_in", 4), ("t_in", 2))
        ),
        tuple((n, "FLOAT", ("batch", w)) for n, w in (("y", 1), ("s_out", 4), ("t_out", 2))),
    ),
    "scalar": s.graph((("x", "FLOAT", ("batch",)),), (("y", "FLOAT", ("batch",)),)),
    "open": s.graph((("x", "FLOAT", ("batch", "width")),), (("y", "FLOAT", ("batch", 3)),)),
    "optional": s.graph(
        (("x", "FLOAT", (4, 2)),),
        (("y", "FLOAT", (4, 3)),),
        ghosts=(("gain", "FLOAT", (1,)),),
        initial=(("gain", "FLOAT", (1,), 1),),
    ),
}
UNBATCHED = s.PLAIN.replace("max_batch_size: 8\n", "").replace("[2]", "[4, 2]").replace("[3]", "[4, 3]")

RIGHT = {
    "written compactly by hand": {"m/config.pbtxt": COMPACT, "m/1/model.onnx": s.graph()},
    "the quickstart's densenet": {
        "densenet_onnx/config.pbtxt": DENSENET,
        "densenet_onnx/1/model.onnx": GRAPHS["densenet"],
        "densenet_onnx/densenet_labels.txt": "label\n" * 1000,
    },
    "the python backend's add_sub": {"add_sub/config.pbtxt": ADD_SUB, "add_sub/1/model.py": s.PYTHON},
    "a python model that completes itself": {"m/1/model.py": SELF_COMPLETING, "m/1/helper.py": "x = 1\n"},
    "a class from another module": {
        "m/config.pbtxt": s.FREE,
        "m/1/model.py": "from impl import Model as TritonPythonModel\n",
        "m/1/impl.py": "class Model: ...\n",
    },
    "an ensemble": {
        "pipeline/config.pbtxt": ENSEMBLE,
        "pipeline/1": None,
        "decode/config.pbtxt": DECODE,
        "decode/1/model.py": s.PYTHON,
        "classify/config.pbtxt": s.PLAIN,
        "classify/1/model.onnx": s.graph(),
    },
    "an ensemble with a member that is completed": {
        "pipeline/config.pbtxt": ENSEMBLE.replace("max_batch_size: 8", "max_batch_size: 4"),
        "pipeline/1": None,
        "decode/config.pbtxt": DECODE,
        "decode/1/model.py": s.PYTHON,
        "classify/1/model.onnx": s.graph(),
    },
    "plans by compute capability": {
        "m/config.pbtxt": TENSORRT,
        "m/1/model_sm75.plan": b"plan",
        "m/1/model_sm120.plan": b"plan",
    },
    "one plan": {"m/1/model.plan": b"plan"},
    "configurations by GPU": {
        "m/config.pbtxt": s.PLAIN,
        "m/1/model.onnx": s.graph(),
        "m/1/t4.plan": b"plan",
        "m/configs/t4.pbtxt": s.PLAIN.replace("onnxruntime", "tensorrt")
        + 'default_model_filename: "t4.plan"\n',
    },
    "text": {
        "m/config.pbtxt": STRINGS,
        "m/1/model.onnx": GRAPHS["strings"],
        "m/warmup/word": struct.pack("<I", 5) + "grüß"[:4].encode()[:5],
    },
    "ragged batches": {"m/config.pbtxt": RAGGED, "m/1/model.onnx": GRAPHS["ragged"]},
    "sequences with implicit state": {
        "m/config.pbtxt": SEQUENCE,
        "m/1/model.onnx": GRAPHS["sequence"],
        "m/initial_state/zeros": bytes(16),
    },
    "scalars": {"m/config.pbtxt": SCALAR, "m/1/model.onnx": GRAPHS["scalar"]},
    "an input narrower than the graph's": {"m/config.pbtxt": s.PLAIN, "m/1/model.onnx": GRAPHS["open"]},
    "no batching, and an optional input": {
        "m/config.pbtxt": UNBATCHED + 'input { name: "gain" data_type: TYPE_FP32 dims: 1 optional: true }\n',
        "m/1/model.onnx": GRAPHS["optional"],
    },
    "an initialiser that requests do not set": {
        "m/config.pbtxt": UNBATCHED,
        "m/1/model.onnx": GRAPHS["optional"],
    },
    "TorchScript": {"m/config.pbtxt": TORCH, "m/1/model.pt": s.zipped("x/code/a.py", "x/constants.pkl")},
    "TorchScript by argument names": {
        "m/config.pbtxt": FORWARD,
        "m/1/model.pt": s.zipped("x/code/a.py", "x/constants.pkl"),
    },
    "a decoupled python model": {"tokens/config.pbtxt": DECOUPLED, "tokens/1/model.py": s.PYTHON},
    "several versions": {
        "m/config.pbtxt": VERSIONS,
        **{f"m/{n}/model.onnx": s.graph() for n in (1, 2, 3, 10)},
    },
    "priorities and a cache": {"m/config.pbtxt": PRIORITIES, "m/1/model.onnx": s.graph()},
    "no configuration at all": {"m/1/model.onnx": s.graph()},
    "an ONNX model as a folder": {
        "m/config.pbtxt": s.PLAIN,
        "m/1/model.onnx/model.onnx": s.graph(external=(("w", "w.bin", 4, 8),)),
        "m/1/model.onnx/w.bin": bytes(12),
    },
    "a backend of NVIDIA's": {
        "m/config.pbtxt": s.PLAIN.replace("onnxruntime", "fil")
        + 'parameters { key: "model_type" value { string_value: "xgboost_json" } }\n',
        "m/1/xgboost.json": "{}",
    },
    "packages beside a python model": {**s.python(), "m/pkg/model.py": "x = 1\n", "m/assets/net.onnx": b"x"},
    "configurations by GPU and no other": {
        "m/configs/t4.pbtxt": s.PLAIN.replace("onnxruntime", "tensorrt")
        + 'default_model_filename: "t4.plan"\n',
        "m/1/t4.plan": b"plan",
    },
    "a file of ONNX Runtime's own format": {
        "m/config.pbtxt": s.PLAIN + 'default_model_filename: "model.ort"\n',
        "m/1/model.ort": b"\x00\x00\x00\x00ORTM",
    },
    "Windows line ends": {
        k: v.replace("\n", "\r\n") if isinstance(v, str) else v for k, v in s.onnx().items()
    },
    "a file beside the models": {"README.md": "x", **s.onnx()},
}


@pytest.mark.parametrize("files", RIGHT.values(), ids=RIGHT)
def test_a_right_repository_is_silent(repository, told, files):
    """Nothing is said about it, not even a note."""
    assert told(repository(files)) == []


def test_each_model_of_a_right_repository_is_silent_by_itself(repository, told):
    """A model's folder and its config.pbtxt can be checked alone; an ensemble still knows its members."""
    root = repository(RIGHT["an ensemble"])
    for name in ("pipeline", "decode", "classify"):
        assert told(root / name) == []
        assert told(root / name / "config.pbtxt") == []


def test_what_repobuild_converts_is_silent(risk_project, repobuild_cli, told, tmp_path):
    """The emitted repository passes the check that hand-written ones get."""
    done = repobuild_cli("convert", risk_project, "-r", tmp_path / "out", "--trust", "pickle", "-q")
    assert done.status == 0, done.err
    assert told(tmp_path / "out") == []


def test_what_repobuild_converts_of_texts_is_silent(tmp_path, repobuild_cli, told):
    """Text inputs, labels and warm-up samples with length prefixes."""
    import joblib
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts = ["good film", "bad film", "great fun", "awful bore"] * 5
    joblib.dump(
        make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [1, 0, 1, 0] * 5),
        tmp_path / "m.joblib",
    )
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"text": "{t}"}}\n' for t in texts))
    words = ["--samples", tmp_path / "rows.jsonl", "-r", tmp_path / "out", "--trust", "pickle", "-q"]
    done = repobuild_cli("convert", tmp_path / "m.joblib", *words)
    assert done.status == 0, done.err
    assert told(tmp_path / "out") == []
