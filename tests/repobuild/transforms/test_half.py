"""float16: what is converted, what stays, and that answers and interfaces stay."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from repobuild.errors import ConversionFailed, InputInvalid
from repobuild.transforms.half import Half
from repobuild.transforms.rounding import RoundedRunner

node = helper.make_node


def weights(rng, *names, size=64):
    return {name: (rng.normal(size=(size, size)) * 0.1).astype("f") for name in names}


def requests(rng, *rows, size=64):
    return [{"x": rng.normal(size=(n, size)).astype("f")} for n in rows]


def types(path):
    return {t.name: t.data_type for t in onnx.load(path, load_external_data=False).graph.initializer}


IN, OUT = {"x": ("f", ["n", 64])}, {"y": ("f", ["n", 64])}
MLP = [node("MatMul", ["x", "a"], ["h"]), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "b"], ["y"])]


@pytest.mark.parametrize("external", [False, True], ids=["inline", "external"])
def test_a_network_is_half_as_large_and_answers_alike(graph, target, same, rng, external):
    path = graph(MLP, IN, OUT, weights(rng, "a", "b"), external=external)
    asked = requests(rng, 1, 5, 0)
    done = Half().apply(path, asked, target)
    same(path, target, asked)
    assert done.after.bytes < 0.55 * done.before.bytes
    assert (target.parent / "model.onnx.data").exists() == external
    assert done.notes == ()
    assert set(types(target).values()) == {TensorProto.FLOAT16}
    assert {tool.name for tool in done.tools} == {"onnx", "onnxruntime"}


def test_two_runs_write_the_same_bytes(graph, target, rng):
    path = graph(MLP, IN, OUT, weights(rng, "a", "b"), external=True)
    made = []
    for _ in range(2):
        Half().apply(path, requests(rng, 1, 2), target)
        made.append((target.read_bytes(), target.with_name("model.onnx.data").read_bytes()))
    assert made[0] == made[1]


def test_nodes_around_a_value_that_overflows_on_any_request_stay_float32(graph, target, same, rng):
    nodes = [
        node("MatMul", ["x", "a"], ["h"], name="first"),
        node("Mul", ["h", "h"], ["squares"], name="square"),
        node("Sqrt", ["squares"], ["root"], name="root"),
        node("MatMul", ["root", "b"], ["y"], name="last"),
    ]
    path = graph(nodes, IN, OUT, weights(rng, "a", "b"))
    small, large = requests(rng, 2)[0], {"x": np.full((1, 64), 1e3, "f")}
    assert Half().apply(path, [small], target).notes == ()
    done = Half().apply(path, [small, large], target)
    same(path, target, [small, large], rtol=1e-2, atol=1)
    assert done.notes[0].startswith("2 nodes stay float32 for their values: Mul 'square': 'squares' reaches ")
    assert "Sqrt 'root'" in done.notes[0]
    assert "first" not in done.notes[0]


def test_a_weight_beyond_float16_keeps_its_readers_in_float32(graph, target, same, rng):
    nodes = [
        node("MatMul", ["x", "a"], ["h"]),
        node("Mul", ["h", "big"], ["m"], name="up"),
        node("Div", ["m", "big"], ["y"], name="down"),
    ]
    path = graph(nodes, IN, OUT, {**weights(rng, "a"), "big": np.float32([1e5])})
    asked = requests(rng, 1, 3)
    done = Half().apply(path, asked, target)
    same(path, target, asked)
    assert "its weight 'big' holds 1e+05" in done.notes[0]
    assert types(target) == {"a": TensorProto.FLOAT16, "big": TensorProto.FLOAT}


def test_a_weight_that_would_become_zero_keeps_its_readers_in_float32(graph, target, rng, answers):
    nodes = [
        node("MatMul", ["x", "a"], ["h"]),
        node("Mul", ["h", "zero"], ["z"]),
        node("Add", ["z", "tiny"], ["t"], name="guard"),
        node("Div", ["one", "t"], ["y"], name="inverse"),
    ]
    extra = {"zero": np.float32(0), "tiny": np.float32(1e-9), "one": np.float32(1e-5)}
    path = graph(nodes, IN, OUT, {**weights(rng, "a"), **extra})
    done = Half().apply(path, requests(rng, 2), target)
    assert "rounds to zero" in done.notes[0]
    assert "Add 'guard'" in done.notes[0]
    np.testing.assert_allclose(answers(target, requests(rng, 2))[0]["y"], 1e4, rtol=1e-3)


def test_single_values_that_round_to_zero_are_counted(graph, target, rng):
    values = weights(rng, "a", "b")
    values["a"][0, :7] = 1e-9
    done = Half().apply(graph(MLP, IN, OUT, values), requests(rng, 2), target)
    assert done.notes == ("7 values of 1 weights round to zero in float16",)


def test_whole_numbers_beyond_2048_stay_exact(graph, target, same):
    nodes = [
        node("Cast", ["x"], ["f"], to=1),
        node("Mul", ["f", "k"], ["g"]),
        node("Cast", ["g"], ["y"], to=7),
    ]
    path = graph(nodes, {"x": ("i", ["n"])}, {"y": ("i", ["n"])}, {"k": np.float32([3])})
    with pytest.raises(ConversionFailed, match="no node of the graph can compute in float16"):
        Half().apply(path, [{"x": np.array([1, 3001])}], target)
    Half().apply(path, [{"x": np.array([1, 301])}], target)
    same(path, target, [{"x": np.array([1, 301])}])


def test_infinities_and_nan_that_are_right_answers_stay(graph, target, answers, rng):
    nodes = [
        node("MatMul", ["x", "a"], ["h"]),
        node("Less", ["h", "zero"], ["mask"]),
        node("Where", ["mask", "minus", "h"], ["masked"]),
        node("Softmax", ["masked"], ["p"]),
        node("Log", ["p"], ["y"]),
    ]
    extra = {"zero": np.float32(0), "minus": np.float32(-np.inf)}
    path = graph(nodes, IN, OUT, {**weights(rng, "a"), **extra})
    asked = [*requests(rng, 2), {"x": np.full((1, 64), np.nan, "f")}]
    done = Half().apply(path, asked, target)
    for want, got in zip(answers(path, asked), answers(target, asked), strict=True):
        np.testing.assert_allclose(got["y"], want["y"], atol=1e-2)
    assert not any("for their values" in note for note in done.notes)


def test_a_weight_shared_by_both_kinds_of_nodes_is_stored_once(graph, target, same, rng):
    nodes = [
        node("MatMul", ["x", "a"], ["h"], name="narrow"),
        node("Mul", ["x", "thousand"], ["large"]),
        node("MatMul", ["large", "a"], ["wide"], name="wide"),
        node("Div", ["wide", "thousand"], ["back"]),
        node("Add", ["h", "back"], ["y"]),
    ]
    path = graph(nodes, IN, OUT, {**weights(rng, "a"), "thousand": np.float32(1e5)})
    asked = requests(rng, 2)
    done = Half().apply(path, asked, target)
    same(path, target, asked, rtol=1e-2, atol=1e-2)
    assert types(target)["a"] == TensorProto.FLOAT16
    assert done.after.bytes < 0.6 * done.before.bytes


def test_outputs_that_are_inputs_weights_or_read_further_keep_their_type(graph, target, same, rng):
    nodes = [
        node("MatMul", ["x", "a"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("Identity", ["x"], ["again"]),
    ]
    outputs = {"h": OUT["y"], "r": OUT["y"], "again": OUT["y"], "a": ("f", [64, 64]), "x2": OUT["y"]}
    nodes.append(node("Add", ["r", "h"], ["x2"]))
    path = graph(nodes, IN, outputs, weights(rng, "a"))
    asked = requests(rng, 3)
    Half().apply(path, asked, target)
    same(path, target, asked)


def test_weights_listed_as_inputs_can_still_be_given(graph, target, same, rng):
    path = graph(MLP, IN, OUT, weights(rng, "a", "b"), weights_as_inputs=["a"])
    asked = [*requests(rng, 2), {**requests(rng, 2)[0], **weights(rng, "a")}]
    Half().apply(path, asked[:1], target)
    same(path, target, asked)


def branches(rng):
    then = helper.make_graph(
        [node("MatMul", ["x", "w"], ["t"]), node("Mul", ["t", "big"], ["t2"], name="inside")],
        "then",
        [],
        [helper.make_tensor_value_info("t2", 1, ["n", 64])],
        [
            numpy_helper.from_array(weights(rng, "w")["w"], "w"),
            numpy_helper.from_array(np.float32(1e5), "big"),
        ],
    )
    other = helper.make_graph(
        [node("MatMul", ["a", "w"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", 1, ["n", 64])],
        [numpy_helper.from_array(weights(rng, "w")["w"], "w")],
    )
    return [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("Relu", ["x"], ["a"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]


def test_branches_are_converted_and_their_overflow_is_found(graph, target, same, rng):
    path = graph(branches(rng), IN, OUT, {"zero": np.float32(0)})
    asked = [{"x": np.full((2, 64), v, "f")} for v in (0.1, -0.1)]
    done = Half().apply(path, asked, target)
    same(path, target, asked, rtol=1e-2, atol=10)
    assert "Mul 'inside'" in done.notes[0]
    assert done.after.bytes < 0.6 * done.before.bytes


@pytest.mark.parametrize("scale", [0.9, 3.0], ids=["fits", "overflows"])
def test_loops_are_measured_over_all_turns(graph, target, same, rng, scale):
    body = helper.make_graph(
        [
            node("MatMul", ["state", "w"], ["m"], name="inside"),
            node("Identity", ["go"], ["still"]),
            node("Tanh", ["m"], ["bounded"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", 1, ["n", 64]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("m", 1, ["n", 64]),
            helper.make_tensor_value_info("bounded", 1, ["n", 64]),
        ],
    )
    path = graph(
        [node("Loop", ["turns", "", "x"], ["final", "all"], body=body)],
        {**IN, "turns": ("i", [])},
        {"final": OUT["y"], "all": ("f", ["t", "n", 64])},
        {"w": np.eye(64, dtype="f") * scale},
    )
    asked = [{"x": np.full((2, 64), 0.5, "f"), "turns": np.array(turns)} for turns in (0, 1, 12)]
    if scale > 1:
        with pytest.raises(ConversionFailed) as caught:
            Half().apply(path, asked, target)
        assert "MatMul 'inside': 'state' reaches 8.857e+04" in str(caught.value)
        assert "Tanh 'bounded': 'm' reaches 2.657e+05" in str(caught.value)
        Half().apply(path, asked[:2], target)
        return
    done = Half().apply(path, asked, target)
    same(path, target, asked)
    assert done.notes == ()


def test_a_scan_is_converted(graph, target, same, rng):
    body = helper.make_graph(
        [node("Add", ["sum_in", "row"], ["sum_out"]), node("Mul", ["sum_out", "two"], ["out"])],
        "body",
        [helper.make_tensor_value_info(n, 1, [8]) for n in ("sum_in", "row")],
        [helper.make_tensor_value_info(n, 1, [8]) for n in ("sum_out", "out")],
        [numpy_helper.from_array(np.float32(2), "two")],
    )
    path = graph(
        [node("Scan", ["start", "x"], ["end", "y"], body=body, num_scan_inputs=1)],
        {"start": ("f", [8]), "x": ("f", ["t", 8])},
        {"end": ("f", [8]), "y": ("f", ["t", 8])},
    )
    asked = [{"start": np.zeros(8, "f"), "x": rng.normal(size=(t, 8)).astype("f")} for t in (1, 6)]
    done = Half().apply(path, asked, target)
    same(path, target, asked, atol=1e-2)
    assert done.detail.startswith("2 of 2 float32 nodes compute in float16")


def test_operators_without_a_float16_form_stay(graph, target, same, rng):
    nodes = [
        node("Resize", ["x", "", "scales"], ["large"], mode="linear"),
        node("TopK", ["large", "three"], ["top", "at"]),
        node("DynamicQuantizeLinear", ["large"], ["q", "s", "z"]),
        node("DequantizeLinear", ["q", "s", "z"], ["back"]),
        node("Constant", [], ["c"], value_float=0.5),
        node("Mul", ["back", "c"], ["y"]),
    ]
    path = graph(
        nodes,
        IN,
        {"y": ("f", ["m", "k"]), "top": ("f", ["m", 3]), "at": ("i", ["m", 3])},
        {"scales": np.float32([1, 2]), "three": np.array([3])},
    )
    asked = requests(rng, 1, 2)
    done = Half().apply(path, asked, target)
    same(path, target, asked, atol=2e-2)
    assert "DequantizeLinear is better left in float32 (1)" in done.notes[-2]


def test_recurrent_and_normalising_operators_convert(graph, target, same, rng):
    nodes = [
        node("LSTM", ["x", "w", "r"], ["all", "", ""], hidden_size=8),
        node("Squeeze", ["all", "one"], ["s"]),
        node("LayerNormalization", ["s", "gain"], ["y"]),
    ]
    path = graph(
        nodes,
        {"x": ("f", ["t", "n", 4])},
        {"y": ("f", ["t", "n", 8])},
        {
            "w": rng.normal(size=(1, 32, 4)).astype("f"),
            "r": rng.normal(size=(1, 32, 8)).astype("f") * np.float32(0.2),
            "one": np.array([1]),
            "gain": np.ones(8, "f"),
        },
    )
    asked = [{"x": rng.normal(size=(t, n, 4)).astype("f")} for t, n in ((1, 1), (5, 3))]
    Half().apply(path, asked, target)
    same(path, target, asked, atol=2e-2)


def test_local_functions_and_odd_names(graph, target, same, rng):
    twice = helper.make_function(
        "own", "Twice", ["v"], ["o"], [node("Add", ["v", "v"], ["o"])], [helper.make_opsetid("", 17)]
    )
    nodes = [
        node("MatMul", ["x", "x/float16"], ["h h"]),
        node("Twice", ["h h"], ["ü"], domain="own"),
        node("Relu", ["ü"], ["y"]),
    ]
    path = graph(nodes, IN, OUT, {"x/float16": weights(rng, "a")["a"]}, functions=[twice])
    asked = requests(rng, 2)
    Half().apply(path, asked, target)
    same(path, target, asked)


@pytest.mark.parametrize("kind", ["d", "i", "h"], ids=["float64", "int64", "float16"])
def test_a_graph_without_float32_is_refused_with_the_reason(graph, target, kind):
    path = graph([node("Add", ["x", "x"], ["y"])], {"x": (kind, ["n"])}, {"y": (kind, ["n"])})
    array = np.ones(3, {"d": "f8", "i": "i8", "h": "f2"}[kind])
    with pytest.raises(ConversionFailed) as caught:
        Half().apply(path, [{"x": array}], target)
    assert caught.value.code == "nothing-to-convert"
    assert "1 nodes and 0 float32 weights" in str(caught.value)
    assert not target.exists()


def test_text_inputs_pass_by(graph, target, same, rng):
    nodes = [
        node(
            "LabelEncoder", ["t"], ["i"], domain="ai.onnx.ml", keys_strings=["a", "b"], values_int64s=[0, 1]
        ),
        node("Gather", ["table", "i"], ["e"]),
        node("MatMul", ["e", "a"], ["y"]),
    ]
    path = graph(nodes, {"t": ("s", ["n"])}, OUT, {**weights(rng, "table", "a")}, ml=2)
    asked = [{"t": np.array(["a", "b", "a"], dtype=object)}]
    Half().apply(path, asked, target)
    same(path, target, asked)
    assert set(types(target).values()) == {TensorProto.FLOAT16}


def test_an_old_opset_converts(graph, target, same, rng):
    path = graph(MLP, IN, OUT, weights(rng, "a", "b"), opset=11)
    asked = requests(rng, 1, 2)
    Half().apply(path, asked, target)
    same(path, target, asked)


def test_without_requests_nothing_is_claimed(graph, target, rng):
    with pytest.raises(InputInvalid) as caught:
        Half().apply(graph(MLP, IN, OUT, weights(rng, "a", "b")), [], target)
    assert caught.value.code == "samples-needed"


def test_what_only_float16_breaks_is_found_by_running_it(graph, target, same, answers, rng):
    nodes = [
        node("MatMul", ["x", "a"], ["g"], name="first"),
        node("Relu", ["g"], ["f"], name="bend"),
        node("Abs", ["f"], ["h"], name="flip"),
        node("Add", ["one", "small"], ["sum"], name="sum"),
        node("Sub", ["sum", "one"], ["rest"], name="difference"),
        node("Div", ["h", "rest"], ["large"], name="quotient"),
        node("Mul", ["large", "small"], ["y"], name="back"),
    ]
    extra = {"one": np.float32([1]), "small": np.float32([2e-4])}
    path = graph(nodes, IN, OUT, {**weights(rng, "a"), **extra})
    asked = requests(rng, 3)
    done = Half().apply(path, asked, target)
    same(path, target, asked, rtol=1e-2, atol=1e-2)
    assert "Div 'quotient': 'large' is NaN or infinite in float16 alone" in done.notes[0]
    assert "Sub 'difference': 'rest' is what large comes from" in done.notes[0]
    assert "first" not in done.notes[0]
    got = RoundedRunner(target).run(asked[0])["y"]
    np.testing.assert_allclose(got, answers(path, asked)[0]["y"], rtol=1e-2, atol=1e-2)


def test_inputs_beyond_float16_are_read_in_float32(graph, target, same, rng):
    nodes = [
        node("Mul", ["x", "shrink"], ["s"], name="scale"),
        node("MatMul", ["s", "a"], ["y"], name="product"),
    ]
    path = graph(nodes, IN, OUT, {**weights(rng, "a"), "shrink": np.float32(1e-5)})
    asked = [{"x": rng.normal(size=(2, 64)).astype("f") * np.float32(1e5)}]
    done = Half().apply(path, asked, target)
    same(path, target, asked)
    assert done.notes[0].startswith("1 nodes stay float32 for their values: Mul 'scale': 'x' reaches ")
