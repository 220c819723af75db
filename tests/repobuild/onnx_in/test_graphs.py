"""Graphs as tools and people write them: what is emitted, and what is refused with which words."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from repobuild.errors import RepobuildError

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
F = np.float32


def rows(*shape, dtype=F):
    return np.random.RandomState(0).standard_normal(shape).astype(dtype)


def tensors(built):
    signature = built.emission.signature
    return {s.name: (s.dtype.value, list(s.shape)) for s in (*signature.inputs, *signature.outputs)}


def graph_of(built):
    return onnx.load(built.emission.folder / str(built.emission.version) / "model.onnx")


def answer(built, **feeds):
    path = built.emission.folder / str(built.emission.version) / "model.onnx"
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def test_numbers_without_axes_go_in_and_out(built):
    made = built(
        HEAD + "g (float x, float[n] y) => (float z) { a = ReduceSum<keepdims=0>(y) z = Add(a, x) }",
        x=np.array(3, F),
        y=rows(4),
    )
    assert not made.batched
    assert tensors(made) == {"x": ("FP32", [1]), "y": ("FP32", [None]), "z": ("FP32", [1])}
    assert answer(made, x=np.array([1], F), y=np.ones(2, F))["z"].tolist() == [3.0]


def test_a_number_that_only_a_branch_reads_is_taken_out_of_its_axis(built):
    text = (
        HEAD
        + """g (bool c, float x, float[2,3] y) => (float[2,3] z) {
        z = If(c) <then_branch = a () => (float[2,3] p) { p = Mul(y, x) },
                   else_branch = b () => (float[2,3] q) { q = Add(y, x) }> }"""
    )
    made = built(text, c=np.array(True), x=np.array(3, F), y=rows(2, 3))
    got = answer(made, c=np.array([False]), x=np.array([2], F), y=np.zeros((2, 3), F))
    assert got["z"].tolist() == [[2.0] * 3] * 2


def test_names_follow_into_branches_that_read_renamed_tensors(built):
    text = (
        HEAD
        + """g (bool c, float[2,3] x) => (float[2,3] y, float[2,3] w) {
        y = Relu(x)
        w = If(c) <then_branch = a () => (float[2,3] p) { p = Neg(y) },
                   else_branch = b () => (float[2,3] y2) { y2 = Identity(y) }> }"""
    )
    made = built(text, c=np.array(True), x=rows(2, 3))
    got = answer(made, c=np.array([True]), x=-np.ones((2, 3), F))
    assert got["w"].tolist() == [[0.0] * 3] * 2 == got["y"].tolist()


def test_a_branch_may_answer_with_a_tensor_from_outside(built):
    text = (
        HEAD
        + """g (bool c, float[2,3] x) => (float[2,3] y, float[2,3] w) {
        y = Relu(x)
        one = Identity(y)
        w = If(c) <then_branch = a () => (float[2,3] p) { p = Neg(x) },
                   else_branch = b () => (float[2,3] r) { r = Add(y, one) }> }"""
    )
    made = built(text, c=np.array(False), x=rows(2, 3))
    assert answer(made, c=np.array([False]), x=np.ones((2, 3), F))["w"].tolist() == [[2.0] * 3] * 2


def test_a_loop_reads_an_input_of_one_axis_in_a_batch(built):
    text = (
        HEAD
        + """g (float[n] x) => (float[n] y) {
        trips = Constant<value = int64 {3}>() go = Constant<value = bool {1}>()
        y = Loop(trips, go, x) <body = b (int64 i, bool c, float[k] s) => (bool d, float[k] t) {
            d = Identity(c) t = Add(s, x) }> }"""
    )
    made = built(text, x=rows(5))
    assert made.batched
    assert tensors(made) == {"x": ("FP32", [None, 1]), "y": ("FP32", [None, 1])}
    assert answer(made, x=np.array([[1], [2]], F))["y"].tolist() == [[4.0], [8.0]]


def test_one_axis_is_the_batch_and_gets_a_second(built):
    made = built(
        HEAD + "g (int64[n] x, float[n] y) => (float[n] z) { a = Cast<to=1>(x) z = Add(a, y) }",
        x=np.arange(6),
        y=rows(6),
    )
    assert made.batched
    assert made.emission.config.max_batch_size > 0
    assert tensors(made)["x"] == ("INT64", [None, 1])


def test_an_output_that_is_an_input_is_called_otherwise(built):
    made = built(HEAD + "g (float[n,2] x) => (float[n,2] x, float[n,2] y) { y = Neg(x) }", x=rows(5, 2))
    assert set(tensors(made)) == {"x", "x_out", "y"}
    assert answer(made, x=np.ones((1, 2), F))["x_out"].tolist() == [[1.0, 1.0]]


def test_a_constant_output_has_no_rows(built):
    made = built(
        HEAD + "g (float[n,2] x) => (float[n,2] y, float[3] k) <float[3] k = {1,2,3}> { y = Neg(x) }",
        x=rows(5, 2),
    )
    assert not made.batched
    assert made.emission.config.max_batch_size == 0
    assert answer(made, x=np.ones((2, 2), F))["k"].tolist() == [1.0, 2.0, 3.0]
    assert any("no batch dimension: output 'k'" in n for n in made.notes)


def test_an_input_that_nothing_reads_stays(built):
    made = built(
        HEAD + "g (float[n,2] x, int32[n,1] unused) => (float[n,2] y) { y = Neg(x) }",
        x=rows(5, 2),
        unused=np.zeros((5, 1), np.int32),
    )
    assert "unused" in tensors(made)
    assert [i.name for i in made.emission.config.input] == ["x", "unused"]


def test_a_free_first_axis_that_is_no_batch(built):
    made = built(HEAD + "g (float[n,2] x) => (float[1,2] y) { y = ReduceMean<axes=[0]>(x) }", x=rows(5, 2))
    assert not made.batched
    assert tensors(made) == {"x": ("FP32", [None, 2]), "y": ("FP32", [1, 2])}


def test_axes_of_one_name_have_one_size(built):
    made = built(
        HEAD + "g (float[n,t] x, float[n,t] m) => (float[n,t] y) { y = Mul(x, m) }",
        x=rows(4, 3),
        m=rows(4, 3),
    )
    assert made.batched
    assert tensors(made) == {k: ("FP32", [None, None]) for k in ("x", "m", "y")}


def test_shapes_that_the_file_leaves_out_are_found(built):
    model = onnx.parser.parse_model(HEAD + "g (float[n,2] x) => (float[n,2] y) { y = Neg(x) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    made = built(model, x=rows(5, 2))
    assert made.batched
    assert answer(made, x=np.ones((1, 2), F))["y"].tolist() == [[-1.0, -1.0]]


def test_a_function_of_the_file_itself(built):
    text = """<ir_version: 8, opset_import: ["" : 17, "here" : 1]>
        g (float[n,2] x) => (float[n,2] y) { y = here.Twice(x) }
        <domain: "here", opset_import: ["" : 17]> Twice (a) => (b) { b = Add(a, a) }"""
    made = built(text, x=rows(5, 2))
    assert made.batched
    assert answer(made, x=np.ones((1, 2), F))["y"].tolist() == [[2.0, 2.0]]


def test_an_operator_of_onnx_runtime_itself(built):
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[n,2] x) => (float[n,2] y) { y = com.microsoft.FastGelu(x) }"""
    assert built(text, x=rows(5, 2)).batched


def test_an_operator_that_nobody_knows_is_named(built):
    text = """<ir_version: 8, opset_import: ["" : 17, "their.domain" : 1]>
        g (float[n,2] x) => (float[n,2] y) { y = their.domain.Magic(x) }"""
    with pytest.raises(RepobuildError) as told:
        built(text, x=rows(5, 2))
    assert told.value.code == "model-unloadable"
    assert "operator Magic of domain their.domain" in [e.text for e in told.value.evidence]


@pytest.mark.parametrize("opset", range(7, 27))
def test_every_opset_that_onnx_runtime_has(built, opset):
    text = f"""<ir_version: 3, opset_import: ["" : {opset}]>
        g (float[n] x, float[2] k) => (float[n,2] y, float z) <float[2] k = {{1,2}}> {{
            a = Reshape(x, s) y = Mul(a, k) z = ReduceMax<keepdims=0>(x) }}"""
    model = onnx.parser.parse_model(text.replace("<float[2]", "<int64[2] s = {-1,1}, float[2]"))
    model.graph.input.append(onnx.helper.make_tensor_value_info("s", onnx.TensorProto.INT64, [2]))
    made = built(model, x=rows(5))
    graph = graph_of(made)
    assert [e.version for e in graph.opset_import if not e.domain] == [opset]
    assert graph.ir_version >= 4
    assert [i.name for i in graph.graph.input] == ["x"]
    assert any("initialisers listed as inputs became constants: k, s" in n for n in made.notes)


@pytest.mark.parametrize(("target", "newest"), [("23.10", 19), ("24.10", 21), ("26.08", 26)])
def test_a_newer_opset_is_brought_to_what_the_target_loads(built, target, newest):
    text = '<ir_version: 13, opset_import: ["" : 26]>\n'
    made = built(
        text + "g (float[n,2] x) => (float[n,2] y) { a = Relu(x) y = Softmax(a) }",
        x=rows(5, 2),
        recipe={"target": target},
    )
    graph = graph_of(made)
    assert [e.version for e in graph.opset_import] == [newest]


def test_a_wanted_opset_raises_the_graph(built):
    text = '<ir_version: 4, opset_import: ["" : 9]>\n'
    made = built(
        text + "g (float[n,2] x) => (float[n,2] y) { y = Softmax<axis=1>(x) }",
        x=rows(5, 2),
        recipe={"opset": 17},
    )
    assert [e.version for e in graph_of(made).opset_import] == [17]


def test_an_operator_newer_than_the_target_is_named(built):
    text = '<ir_version: 10, opset_import: ["" : 20]>\n'
    with pytest.raises(RepobuildError) as told:
        built(
            text + "g (float[n,2] x) => (float[n,2] y) { y = Gelu(x) }",
            x=rows(5, 2),
            recipe={"target": "23.10"},
        )
    assert told.value.code == "opset-conversion"
    assert "operator Gelu is as the graph has it since an opset above 19" in told.value.evidence[0].text


TYPES = {
    "bool": np.bool_, "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64, "float16": np.float16,
    "float": np.float32, "double": np.float64, "string": np.str_,
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_every_type_that_triton_has_goes_through(built, name):
    values = np.array([["1", "0"], ["1", "1"], ["0", "0"]]).astype(int).astype(TYPES[name])
    made = built(HEAD + f"g ({name}[n,2] x) => ({name}[n,2] y) {{ y = Identity(x) }}", x=values)
    assert made.batched
    kind = onnx.helper.tensor_dtype_to_np_dtype(graph_of(made).graph.input[0].type.tensor_type.elem_type)
    assert kind == (np.dtype(object) if name == "string" else np.dtype(TYPES[name]))


@pytest.mark.parametrize("name", ["bfloat16", "float8e4m3fn", "int4", "uint4", "complex64"])
def test_types_that_triton_lacks_are_refused_at_the_edge(built, name):
    with pytest.raises(RepobuildError) as told:
        built(
            HEAD.replace("8,", "10,").replace("17", "21")
            + f"g ({name}[n,2] x) => (float[n,2] y) {{ y = Cast<to=1>(x) }}",
            x=rows(5, 2),
        )
    assert told.value.code in ("input-kind", "model-invalid")


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "FLOAT8E4M3FN"])
def test_small_types_inside_are_fine(built, kind):
    number = getattr(onnx.TensorProto, kind)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n,2] x) => (float[n,2] y)'
        " <float s = {0.5}> { w = DequantizeLinear(q, s) y = Mul(x, w) }"
    )
    model.graph.initializer.append(onnx.helper.make_tensor("q", number, [2], [1, 2]))
    made = built(model, x=rows(5, 2))
    assert made.batched
    assert answer(made, x=np.ones((1, 2), F))["y"].tolist() == [[0.5, 1.0]]


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "BFLOAT16"])
def test_an_output_of_a_type_that_triton_lacks_is_left_out_or_refused(built, kind):
    number = getattr(onnx.TensorProto, kind)
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[n,2] x) => '
    made = built(
        text + f"(float[n,2] y, {kind.lower()}[n,2] z) {{ y = Neg(x) z = Cast<to={number}>(x) }}",
        x=rows(5, 2),
    )
    assert set(tensors(made)) == {"x", "y"}
    assert any(
        f"output 'z' is of type {kind}, which Triton does not carry; it was left out" in n for n in made.notes
    )


def test_a_kept_initialiser_becomes_an_input(built):
    made = built(
        HEAD + "g (float[n,2] x) => (float[n,2] y) <float[2] k = {1,2}> { y = Mul(x, k) }",
        x=rows(5, 2),
        k=np.array([3, 4], F),
        recipe={"export": {"keep_inputs": ["k"]}},
    )
    assert not made.batched
    assert answer(made, x=np.ones((1, 2), F), k=np.array([5, 6], F))["y"].tolist() == [[5.0, 6.0]]


def test_a_graph_without_inputs_answers(built):
    made = built(HEAD + "g () => (float[2] y) { y = Constant<value = float[2] {1,2}>() }")
    assert tensors(made) == {"y": ("FP32", [2])}
    assert answer(made)["y"].tolist() == [1.0, 2.0]


def test_old_prelu_with_many_slopes_is_refused(built):
    text = '<ir_version: 3, opset_import: ["" : 6]> g (float[n,2,2] x, float[2] k) => (float[n,2,2] y)'
    with pytest.raises(RepobuildError) as told:
        built(text + " <float[2] k = {0.5,0.25}> { y = PRelu(x, k) }", x=rows(5, 2, 2))
    assert told.value.code == "model-unloadable"
    assert "PRelu has a slope for each channel" in told.value.evidence[0].text


def test_dropout_that_does_nothing_loses_its_ratio(built):
    text = '<ir_version: 10, opset_import: ["" : 22]> g (float[3,4] x, float r) => (float[3,4] y)'
    made = built(text + " { y = Dropout(x, r) }", x=rows(3, 4), r=np.array(0.1, F))
    assert "Dropout" not in [n.op_type for n in graph_of(made).graph.node]


@pytest.mark.parametrize("odd", ["a b", "x:0", "räder", "a/b.c", "1"])
def test_odd_names_stay(built, odd):
    model = onnx.parser.parse_model(HEAD + "g (float[n,2] x) => (float[n,2] y) { y = Neg(x) }")
    model.graph.input[0].name = model.graph.node[0].input[0] = odd
    made = built(model, **{odd: rows(5, 2)})
    assert odd in tensors(made)


DERIVED = {
    "through an operator": ("(float[n,4] x) => (float[n,m] y) { y = Relu(x) }", [None, 4]),
    "from weights": (
        """(float[n,4] x) => (float[a,b] y) <float[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3}>
        { y = MatMul(x, w) }""",
        [None, 3],
    ),
    "a constant": (
        """(float[n,4] x) => (float[n,4] z, float[q,p] y) <float[2,2] w = {1,2,3,4}>
        { z = Relu(x) y = Identity(w) }""",
        [2, 2],
    ),
    "computed from constants": (
        """(float[n,4] x) => (float[n,m] y) <float[1] two = {2}, int64[1] rest = {-1}> {
        four = Mul(two, two) k = Cast<to=7>(four) s = Concat<axis=0>(rest, k)
        r = Reshape(x, s) y = Relu(r) }""",
        [None, 4],
    ),
    "joined": (
        """(float[n,4] x) => (float[n,m] y)
        { c = ReduceMax<axes=[1], keepdims=1>(x) y = Concat<axis=1>(x, c) }""",
        [None, 5],
    ),
}
"""Outputs with axes that the file leaves open and ONNX Runtime fixes, which Triton then wants to be fixed."""


@pytest.mark.parametrize("case", DERIVED)
def test_sizes_that_the_file_leaves_open_and_the_runtime_derives_are_emitted(built, case):
    text, shape = DERIVED[case]
    made = built(HEAD + f"g {text}", x=rows(5, 4))
    assert tensors(made)["y"] == ("FP32", shape)
    path = made.emission.folder / str(made.emission.version) / "model.onnx"
    sizes = {o.name: o.shape for o in ort.InferenceSession(path).get_outputs()}
    assert [d if isinstance(d, int) else None for d in sizes["y"]] == shape


def test_a_size_that_depends_on_values_stays_open(built):
    text = "(float[n,4] x) => (float[n,4] z, int64[a,b] y) { z = Relu(x) y = NonZero(z) }"
    made = built(HEAD + f"g {text}", x=np.abs(rows(5, 4)) - np.eye(5, 4, dtype=F))
    assert tensors(made)["y"][1][1] is None
