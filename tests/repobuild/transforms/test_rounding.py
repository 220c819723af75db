"""float16 on the CPU is float32 arithmetic, unless each value is rounded on purpose."""

import numpy as np
from onnx import helper

from repobuild.transforms.rounding import RoundedRunner

node = helper.make_node


def difference(graph):
    nodes = [
        node("Cast", ["x"], ["h"], to=10),
        node("Add", ["h", "small"], ["sum"]),
        node("Sub", ["sum", "h"], ["rest"]),
        node("Cast", ["rest"], ["y"], to=1),
    ]
    return graph(nodes, {"x": ("f", ["n"])}, {"y": ("f", ["n"])}, {"small": np.float16([2e-4])})


def test_every_step_is_rounded_as_numpy_does_it(graph):
    path = difference(graph)
    x = np.linspace(-3, 3, 101, dtype="f")
    h = x.astype("f2")
    want = ((h + np.float16(2e-4)) - h).astype("f")
    assert (want == 0).any()
    np.testing.assert_array_equal(RoundedRunner(path).run({"x": x})["y"], want)


def test_overflow_becomes_infinite(graph):
    nodes = [
        node("Cast", ["x"], ["h"], to=10),
        node("Mul", ["h", "h"], ["square"]),
        node("Sqrt", ["square"], ["root"]),
        node("Cast", ["root"], ["y"], to=1),
    ]
    path = graph(nodes, {"x": ("f", ["n"])}, {"y": ("f", ["n"])})
    got = RoundedRunner(path).run({"x": np.float32([3, 1000])})["y"]
    np.testing.assert_array_equal(got, np.float32([3, np.inf]))


def test_bodies_are_rounded_too(graph):
    def branch(name):
        return helper.make_graph(
            [
                node("Cast", ["x"], [f"{name}1"], to=10),
                node("Mul", [f"{name}1", f"{name}1"], [f"{name}2"]),
                node("Sqrt", [f"{name}2"], [f"{name}3"]),
                node("Cast", [f"{name}3"], [name], to=1),
            ],
            name,
            [],
            [helper.make_tensor_value_info(name, 1, ["n"])],
        )

    path = graph(
        [node("If", ["c"], ["y"], then_branch=branch("t"), else_branch=branch("e"))],
        {"x": ("f", ["n"]), "c": ("b", [])},
        {"y": ("f", ["n"])},
    )
    runner = RoundedRunner(path)
    for choice in (True, False):
        got = runner.run({"x": np.float32([3, 1000]), "c": np.array(choice)})["y"]
        np.testing.assert_array_equal(got, np.float32([3, np.inf]))


def test_a_float32_graph_is_left_as_it_is(graph, rng):
    path = graph([node("Abs", ["x"], ["y"])], {"x": ("f", ["n"])}, {"y": ("f", ["n"])})
    x = rng.normal(size=7).astype("f")
    np.testing.assert_array_equal(RoundedRunner(path).run({"x": x})["y"], np.abs(x))
