"""Parts that the tests build repositories from."""

from __future__ import annotations

from functools import cache

MARK = "# <-- here"


@cache
def graph(
    inputs=(("x", "FLOAT", ("batch", 2)),),
    outputs=(("y", "FLOAT", ("batch", 3)),),
    *,
    opset=17,
    ml=None,
    ir=8,
    nodes=(),
    initial=(),
    external=(),
    ghosts=(),
):
    """Bytes of an ONNX model whose outputs are an unknown function of the inputs: shapes are as declared.

    ``external`` holds ``(name, location, offset, length)`` of weights; ``ghosts`` are graph inputs that have
    an initialiser.
    """
    from onnx import ModelProto, TensorProto, helper

    def value(name, kind, shape):
        if kind == "SEQUENCE":
            return helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
        return helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)

    made = [helper.make_node(op, ["x"], [f"{op}_{i}"], domain=domain) for i, (domain, op) in enumerate(nodes)]
    made += [
        helper.make_node("Opaque", [i[0] for i in inputs], [name], domain="com.microsoft")
        for name, *_ in outputs
    ]
    tensors = [
        helper.make_tensor(name, getattr(TensorProto, kind), shape, [0] * size)
        for name, kind, shape, size in initial
    ]
    for name, location, offset, length in external:
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[length // 4])
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in (("location", location), ("offset", str(offset)), ("length", str(length))):
            tensor.external_data.add(key=key, value=text)
        tensors.append(tensor)
    body = helper.make_graph(
        made,
        "g",
        [value(*i) for i in (*inputs, *ghosts)],
        [value(*o) for o in outputs],
        tensors,
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    imports += [helper.make_opsetid("ai.onnx.ml", ml)] if ml else []
    imports += [
        helper.make_opsetid(d, 1) for d in sorted({d for d, _ in nodes} - {"", "ai.onnx.ml", "com.microsoft"})
    ]
    model = ModelProto(ir_version=ir, graph=body, opset_import=imports, producer_name="hand")
    return model.SerializeToString()


PLAIN = """backend: "onnxruntime"
max_batch_size: 8
input {
  name: "x"
  data_type: TYPE_FP32
  dims: [2]
}
output {
  name: "y"
  data_type: TYPE_FP32
  dims: [3]
}
"""
"""The configuration of :func:`graph`, written line by line."""

PYTHON = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""
"""A python model without auto_complete_config."""

FREE = PLAIN.replace("onnxruntime", "python")


def onnx(config=PLAIN, model=None, name="m", version="1"):
    """A model folder with an ONNX file."""
    return {f"{name}/config.pbtxt": config, f"{name}/{version}/model.onnx": model or graph()}


def python(config=FREE, source=PYTHON, name="m"):
    """A model folder with a model.py."""
    return {f"{name}/config.pbtxt": config, f"{name}/1/model.py": source}


def places(files):
    """``[(file, line)]`` of the marks in a repository's texts."""
    found = []
    for name, content in files.items():
        if isinstance(content, str):
            found += [(name, n) for n, line in enumerate(content.split("\n"), 1) if MARK in line]
    return found


def zipped(*names):
    """Bytes of a zip archive with these members."""
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return buffer.getvalue()
