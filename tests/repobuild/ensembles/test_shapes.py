"""Free axes, requests without a batch dimension, and encoded images."""

import numpy as np
import pytest

PADDED = """
    import numpy as np

    def run(inputs):
        lines = [[len(w) for w in item.decode().split()] for item in inputs["TEXT"].ravel()]
        ids = np.zeros((len(lines), max([1, *map(len, lines)])), np.int64)
        for row, line in enumerate(lines):
            ids[row, : len(line)] = line
        return {"ids": ids}
"""
DECODE = """
    import numpy as np

    def run(inputs):
        \"\"\"Binary PPM (P6) of one size to planes in 0..1.\"\"\"
        images = []
        for row in inputs["image"]:
            magic, width, height, most, pixels = row.tobytes().split(maxsplit=4)
            if magic != b"P6":
                raise ValueError("no PPM image")
            shape = (int(height), int(width), 3)
            values = np.frombuffer(pixels, np.uint8).reshape(shape).astype(np.float32) / int(most)
            images.append(values.transpose(2, 0, 1))
        return {"pixels": np.stack(images)}
"""
MEAN = """
    import numpy as np

    def run(inputs):
        means = inputs["pixels"].mean(axis=(2, 3))
        names = np.array(["red", "green", "blue"], dtype=object)
        return {"colour": names[means.argmax(axis=1)][:, None]}
"""


def sums_model(path):
    """INT64 [batch, length] to the sum of each row, FP32 [batch, 1]."""
    from onnx import TensorProto, helper, save

    nodes = [
        helper.make_node("Cast", ["ids"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["numbers", "axis"], ["total"], keepdims=1),
    ]
    graph = helper.make_graph(
        nodes,
        "sums",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("total", TensorProto.FLOAT, ["batch", 1])],
        [helper.make_tensor("axis", TensorProto.INT64, [1], [1])],
    )
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


@pytest.fixture
def padded(toy):
    """A tokenizer that pads to the longest text of a request, and a model with a free axis."""
    toy.write("split.py", PADDED)
    sums_model(toy.home / "sums.onnx")
    (toy.home / "sums.yaml").write_text('{"name": "sums", "source": {"path": "sums.onnx"}}')
    toy.steps[0]["python"]["outputs"][0]["dims"] = [-1]
    del toy.steps[0]["python"]["parameters"]
    toy.steps[1] = {
        "name": "sum",
        "recipe": "sums.yaml",
        "input_map": {"ids": "ids"},
        "output_map": {"total": "total"},
    }
    return toy


def total(server, texts, shape=None):
    tensor = {"name": "TEXT", "shape": shape or [len(texts), 1], "datatype": "BYTES", "data": texts}
    return server.infer("toy", tensor)["outputs"][0]["data"]


def test_rows_padded_to_the_longest_of_their_request(padded, served):
    padded.built()
    with served(padded.repository) as server:
        assert total(server, ["a bb ccc dddd eeeee"]) == [15.0]
        assert total(server, ["a", "a bb ccc dddd eeeee ffffff"]) == [1.0, 21.0]


def test_padded_rows_may_not_be_an_output_in_batches(padded):
    padded.recipe["ensemble"]["outputs"] = ["total", "ids"]
    outcome = padded.build()
    assert outcome.status == 8, outcome.out
    assert not padded.repository.exists()


def test_a_model_without_a_batch_dimension(padded, served):
    padded.recipe["serving"] = {"max_batch_size": 0}
    padded.steps[0]["python"]["inputs"][0]["dims"] = [-1]
    padded.steps[0]["python"]["outputs"][0]["dims"] = [-1, -1]
    padded.built()
    with served(padded.repository) as server:
        assert total(server, ["a bb", "ccc"], [2]) == [3.0, 3.0]


def test_encoded_images_are_uint8(toy, served):
    def ppm(pixels):
        height, width, _ = pixels.shape
        return np.frombuffer(b"P6 %d %d 255\n" % (width, height) + pixels.tobytes(), np.uint8)

    random = np.random.default_rng(0)
    images = random.integers(0, 60, (12, 5, 4, 3)).astype(np.uint8)
    for index, image in enumerate(images):
        image[..., index % 3] += 120
        image[-1, -1] = 0  # the file ends in zero bytes
    toy.write("decode.py", DECODE)
    toy.write("mean.py", MEAN)
    files = np.stack([ppm(image) for image in images])
    toy.samples(image=files)
    toy.recipe["ensemble"]["steps"] = [
        {
            "name": "decode",
            "python": {
                "file": "decode.py",
                "inputs": [{"name": "image", "dtype": "UINT8", "dims": [-1]}],
                "outputs": [{"name": "pixels", "dtype": "FP32", "dims": [3, -1, -1]}],
            },
        },
        {
            "name": "mean",
            "python": {
                "file": "mean.py",
                "inputs": [{"name": "pixels", "dtype": "FP32", "dims": [3, 5, 4]}],
                "outputs": [{"name": "colour", "dtype": "BYTES", "dims": [1]}],
            },
        },
    ]
    toy.built()
    with served(toy.repository) as server:
        tensor = {"name": "image", "shape": list(files[:3].shape), "datatype": "UINT8"}
        got = server.infer("toy", {**tensor, "data": files[:3].ravel().tolist()})
    assert got["outputs"][0]["data"] == ["red", "green", "blue"]
