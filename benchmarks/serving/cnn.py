"""Throughput on a model that costs something: a small CNN on 3x64x64 images, 109 KB a body as JSON.

The ceiling is one thread that calls ``session.run`` in a loop at the same batch size, with nothing else
running: no server can do more with one thread.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from harness import (
    Contender,
    binary_headers,
    interleaved,
    measure,
    medians,
    need_wrk,
    options,
    save,
    serve,
    show,
    stop,
)
from onnx import TensorProto, helper, numpy_helper

SHAPE = (3, 64, 64)
BATCH = 32
CLASSES = 10
CONFIG = f"""\
backend: "onnxruntime"
max_batch_size: {BATCH}
input [{{ name: "IMAGE" data_type: TYPE_FP32 dims: [ 3, 64, 64 ] }}]
output [{{ name: "SCORES" data_type: TYPE_FP32 dims: [ {CLASSES} ] }}]
dynamic_batching {{ max_queue_delay_microseconds: 5000 }}
instance_group [{{ count: 1 kind: KIND_CPU }}]
parameters {{ key: "intra_op_thread_count" value {{ string_value: "1" }} }}
"""


def write_repository(folder: Path) -> Path:
    """Three convolutions and a linear layer with random weights; the path of the ONNX file."""
    rng = np.random.default_rng(0)
    channels = [3, 32, 64, 128]
    nodes, weights, at = [], [], "IMAGE"
    for layer, (before, after) in enumerate(itertools.pairwise(channels)):
        kernel = rng.normal(0, (2 / (9 * before)) ** 0.5, (after, before, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(kernel, f"kernel{layer}"))
        nodes += [
            helper.make_node("Conv", [at, f"kernel{layer}"], [f"conv{layer}"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"conv{layer}"], [f"relu{layer}"]),
            helper.make_node(
                "MaxPool", [f"relu{layer}"], [f"pool{layer}"], kernel_shape=[2, 2], strides=[2, 2]
            ),
        ]
        at = f"pool{layer}"
    weights.append(numpy_helper.from_array(rng.normal(0, 0.1, (128, CLASSES)).astype(np.float32), "linear"))
    nodes += [
        helper.make_node("GlobalAveragePool", [at], ["average"]),
        helper.make_node("Flatten", ["average"], ["flat"]),
        helper.make_node("MatMul", ["flat", "linear"], ["SCORES"]),
    ]
    graph = helper.make_graph(
        nodes,
        "cnn",
        [helper.make_tensor_value_info("IMAGE", TensorProto.FLOAT, ["batch", *SHAPE])],
        [helper.make_tensor_value_info("SCORES", TensorProto.FLOAT, ["batch", CLASSES])],
        weights,
    )
    path = folder / "cnn" / "1" / "model.onnx"
    path.parent.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    (folder / "cnn" / "config.pbtxt").write_text(CONFIG, encoding="utf-8")
    return path


def session_of(model: Path) -> onnxruntime.InferenceSession:
    """A session as the config asks for it."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])


def loop(model: Path, pipe: Connection) -> None:
    """Measure ``session.run`` on a full batch for as many seconds as the pipe says, until it says 0."""
    session = session_of(model)
    images = np.random.default_rng(1).random((BATCH, *SHAPE), dtype=np.float32)
    while seconds := pipe.recv():
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            session.run(None, {"IMAGE": images})
            count += BATCH
        pipe.send(count / (time.perf_counter() - began))


def main() -> None:
    parser = options("Throughput of the bundled server on a CNN.")
    parser.add_argument("--connections", type=int, default=64)
    given = parser.parse_args()
    need_wrk()
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    # Six decimals a number, as clients write pixels: 110 KB.
    pixels = [round(value, 6) for value in np.random.default_rng(1).random(int(np.prod(SHAPE))).tolist()]
    image = np.array(pixels, dtype=np.float32).reshape(1, *SHAPE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_repository(folder / "repository")
        right = session_of(model).run(None, {"IMAGE": image})[0].ravel()
        entry = {"name": "IMAGE", "datatype": "FP32", "shape": [1, *SHAPE]}
        text = json.dumps({"inputs": [{**entry, "data": pixels}]}, separators=(",", ":")).encode()
        header = json.dumps(
            {"inputs": [{**entry, "parameters": {"binary_data_size": image.nbytes}}]}
        ).encode()
        process, port = serve(folder / "repository", folder / "server.json")
        looper = context.Process(target=loop, args=(model, other), daemon=True)
        looper.start()
        url = f"http://127.0.0.1:{port}/v2/models/cnn/infer"
        contenders = [
            Contender("server, binary", process, url, header + image.tobytes(), binary_headers(header)),
            Contender("server, JSON", process, url, text, {"Content-Type": "application/json"}),
        ]

        def bare() -> dict[str, float]:
            pipe.send(given.seconds)
            return {"requests_per_second": pipe.recv()}

        try:
            for contender in contenders:
                scores = json.loads(contender.ask()[0])["outputs"][0]["data"]
                if not np.allclose(scores, right, rtol=1e-4, atol=1e-5):
                    raise SystemExit(f"{contender.name} answers wrongly; nothing was measured")
                measure(contender, folder, 1, given.connections)
            runs = interleaved(
                {
                    "session.run": bare,
                    **{
                        contender.name: partial(measure, contender, folder, given.seconds, given.connections)
                        for contender in contenders
                    },
                },
                given.rounds,
            )
        finally:
            pipe.send(0)
            stop([process])
    print(f"a JSON body has {len(text)} bytes")
    table = medians(runs, "session.run")
    show(table)
    save("cnn", connections=given.connections, json_bytes=len(text), medians=table, runs=runs)


if __name__ == "__main__":
    main()
