"""PyTorch modules through the command line: what is served, what is noted, what is refused."""

import numpy as np
import pytest
import torch

from repobuild.emit.config import read_config
from tests.repobuild.tensor_models.conftest import rows


def tensors(items):
    """``{name: (type, dims)}`` of configuration inputs or outputs."""
    names = items[0].DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    return {t.name: (names[t.data_type].name.removeprefix("TYPE_"), list(t.dims)) for t in items}


@pytest.fixture
def served(convert, tmp_path):
    """Convert a project and give its configuration: ``config, outcome = served(net)``."""

    def run(project, *words, **options):
        outcome = convert(project, *words, **options)
        assert outcome.status == 0, outcome.err + outcome.out
        return read_config(tmp_path / "repository" / "model")[1], outcome

    return run


def refused(outcome, tmp_path):
    """A refusal left nothing and showed no traceback."""
    assert outcome.status != 0
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "repository" / "model").exists()
    return outcome.err


def test_one_row_is_enough_for_a_free_batch_axis(net, served, linear):
    config, outcome = served(net(linear, {"x": rows(1, 4)}))
    assert config.max_batch_size == 8
    assert tensors(config.input) == {"x": ("FP32", [4])}
    assert tensors(config.output) == {"output": ("FP32", [3])}
    assert "3 more were made of their values" in outcome.err


def test_nothing_of_the_users_files_is_in_the_artifact(net, served, linear, tmp_path):
    served(net(linear, {"x": rows(5, 4)}))
    content = (tmp_path / "repository" / "model" / "1" / "model.onnx").read_bytes()
    for word in (str(tmp_path), "net.py", "site-packages", "stack_trace", "self.lin", "class_hierarchy"):
        assert word.encode() not in content, word


def test_two_builds_are_byte_identical(net, repobuild_cli, linear, tmp_path, tree):
    project = net(linear, {"x": rows(5, 4)})
    for name in ("one", "two"):
        words = ("convert", project.recipe, "--repository", tmp_path / name, "--trust", "module")
        assert repobuild_cli(*words).status == 0
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert tree(tmp_path / "one.repobuild") == tree(tmp_path / "two.repobuild")


def test_keyword_optional_and_fixed_arguments_and_a_nested_answer(net, served):
    code = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 2)

        def forward(self, x, mask=None, *, scale, temperature: float = 1.0):
            y = self.lin(x * scale) / temperature
            if mask is not None:
                y = y * mask
            return {"y": y, "more": (y.argmax(1), (y > 0, None)), "temperature": temperature}
    """
    project = net(code, {"scale": rows(5, 1), "x": rows(5, 4)}, export={"constants": {"temperature": 2.5}})
    config, outcome = served(project)
    assert tensors(config.input) == {"x": ("FP32", [4]), "scale": ("FP32", [1])}
    assert tensors(config.output) == {
        "y": ("FP32", [2]),
        "more_0": ("INT64", [1]),
        "more_1_0": ("BOOL", [2]),
    }
    assert "2.5" in (project.home.parent / "repository.repobuild/model/1/report.json").read_text()
    assert outcome.status == 0


def test_a_dict_argument_and_token_masks_with_free_lengths(net, served):
    code = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(11, 6)
            self.gru = nn.GRU(6, 5, batch_first=True)

        def forward(self, batch):
            mask = batch["mask"].unsqueeze(-1)
            states, _ = self.gru(self.emb(batch["ids"]))
            return (states * mask).sum(1) / mask.sum(1).clamp(min=1)
    """
    ids = np.random.default_rng(0).integers(0, 11, (3, 7))
    axes = {"ids": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}}
    project = net(
        code, {"ids": ids, "mask": ids > 2}, export={"dict_argument": "batch", "dynamic_axes": axes}
    )
    config, outcome = served(project)
    assert tensors(config.input) == {"ids": ("INT64", [-1]), "mask": ("BOOL", [-1])}
    assert tensors(config.output) == {"output": ("FP32", [5])}
    said = " ".join(outcome.out.split())
    assert "served: sizes ids [4, 6]; mask [4, 6] pass" in said
    assert "served: sizes ids [4, 8]; mask [4, 8] pass" in said


def test_states_go_in_and_out_without_batching(net, served):
    code = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 4, num_layers=2, batch_first=True)

        def forward(self, x, h, c):
            y, (h, c) = self.rnn(x, (h, c))
            return y, h, c
    """
    samples = {"x": rows(2, 5, 3), "h": rows(2, 2, 4, seed=1), "c": rows(2, 2, 4, seed=2)}
    config, outcome = served(net(code, samples))
    assert config.max_batch_size == 0
    assert tensors(config.input)["h"] == ("FP32", [2, -1, 4])
    assert tensors(config.output)["output_0"] == ("FP32", [-1, 5, 4])
    assert "on another axis than the first in h, c" in outcome.err


@pytest.mark.parametrize(
    ("answer", "dims", "word"),
    [
        ("y.mean(0)", {"output": [3]}, "does not have one row a sample"),
        ("(y, y.pow(2).mean())", {"output_0": [-1, 3], "output_1": [1]}, "output 'output_1'"),
        ("torch.softmax(y, 0)", {"output": [-1, 3]}, "depends on the other rows"),
        ("y - y.mean()", {"output": [-1, 3]}, "depends on the other rows"),
    ],
    ids=["no batch axis", "number", "softmax over rows", "mean over rows"],
)
def test_answers_that_are_not_row_by_row_have_no_batch_dimension(net, served, answer, dims, word):
    code = f"""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 3)

        def forward(self, x):
            y = self.lin(x)
            return {answer}
    """
    config, outcome = served(net(code, {"x": rows(6, 4)}))
    assert config.max_batch_size == 0
    assert tensors(config.input) == {"x": ("FP32", [-1, 4])}
    assert {n: d for n, (_, d) in tensors(config.output).items()} == dims
    assert word in outcome.err


def test_rows_without_own_axes_get_one(net, served):
    code = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(9, 2)

        def forward(self, ids):
            return self.emb(ids).sum(1)
    """
    config, _ = served(net(code, {"ids": np.arange(6)}))
    assert config.max_batch_size == 8
    assert (tensors(config.input), tensors(config.output)) == (
        {"ids": ("INT64", [1])},
        {"output": ("FP32", [1])},
    )


def test_an_input_that_is_an_output_gets_another_name(net, served):
    code = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 2)

        def forward(self, key, x):
            return {"key": key, "y": self.lin(x)}
    """
    config, outcome = served(net(code, {"key": np.arange(4).reshape(4, 1), "x": rows(4, 4)}))
    assert list(tensors(config.output)) == ["key_out", "y"]
    assert "output 'key' is called 'key_out'" in outcome.err


def test_float64_samples_are_sent_in_the_type_that_the_module_takes(net, served, linear):
    config, outcome = served(net(linear, {"x": rows(5, 4).astype(np.float64)}))
    assert tensors(config.input) == {"x": ("FP32", [4])}
    assert "sent as FP32" in outcome.err


def test_outputs_are_selected_and_named_by_the_recipe(net, served, linear):
    project = net(linear, {"x": rows(5, 4)}, outputs=[{"name": "score", "from": "output[:, 1:2]"}])
    config, _ = served(project)
    assert tensors(config.output) == {"score": ("FP32", [1])}


def test_dropout_and_batch_norm_are_in_eval_mode(net, served):
    code = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2))

        def forward(self, x):
            return self.body(x)
    """
    _, outcome = served(net(code, {"x": rows(5, 4)}))
    assert "put into eval mode" in outcome.err


def test_a_random_module_is_found(net, convert, tmp_path):
    code = """
    class Net(nn.Module):
        def forward(self, x):
            return x + torch.randn(x.shape[0], 4)
    """
    outcome = convert(net(code, {"x": rows(5, 4)}))
    assert outcome.status in (4, 5)
    assert "answers differently" in refused(outcome, tmp_path)


def test_a_module_that_keeps_a_state_is_found(net, convert, tmp_path):
    code = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x):
            self.seen += 1
            return x + self.seen
    """
    outcome = convert(net(code, {"x": rows(5, 4)}))
    assert outcome.status in (4, 5)
    assert "answers differently" in refused(outcome, tmp_path)


def test_a_module_that_answers_its_first_calls_otherwise_is_found(net, convert, tmp_path):
    code = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x + (1 if self.calls > 3 else 0)
    """
    outcome = convert(net(code, {"x": rows(5, 4)}))
    assert "after other requests, the model answers differently" in refused(outcome, tmp_path)
    assert "keep its state in inputs and outputs" in outcome.err


def test_what_calls_leave_in_a_module_is_told(net, served):
    code = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.seen = []
            self.cache = None

        def forward(self, x):
            self.count += 1
            self.seen.append(len(x))
            self.cache = self.cache or 2
            return x * self.cache + torch.floor(self.count / 1000)
    """
    _, outcome = served(net(code, {"x": rows(5, 4)}))
    assert "forward changes the module itself (count, seen), and the served model does not" in outcome.err


def test_parts_of_an_answer_that_are_no_tensors_are_told_also_where_they_follow_from_values(net, served):
    code = """
    class Net(nn.Module):
        def forward(self, x):
            return {"y": x + 1, "loss": None, "rows": x.shape[1], "total": x.sum().item(), "kind": "sum"}
    """
    config, outcome = served(net(code, {"x": rows(5, 4)}))
    assert tensors(config.output) == {"y": ("FP32", [4])}
    assert "not served: 'rows' (int), 'total' (float), 'kind' (str)" in outcome.err


def test_answers_without_numbers_are_told(net, served):
    code = """
    class Net(nn.Module):
        def forward(self, x):
            return {"all": x * torch.nan, "some": torch.where(x > 0, x, torch.inf), "none": x}
    """
    _, outcome = served(net(code, {"x": rows(5, 4)}))
    assert "output 'all': the model itself answers the samples with NaN or infinity (all of" in outcome.err
    assert "output 'some': the model itself answers" in outcome.err
    assert "output 'none': the model" not in outcome.err


def test_missing_numbers_that_the_graph_treats_otherwise_are_told(net, served):
    code = """
    class Net(nn.Module):
        def forward(self, x):
            return {FUNCTION}
    """
    told = "requests with missing numbers (NaN) are answered otherwise than by the model"
    _, outcome = served(net(code.replace("{FUNCTION}", "x.argmax(1)"), {"x": rows(5, 4)}))
    assert told in outcome.err
    _, outcome = served(
        net(code.replace("{FUNCTION}", "x * 2"), {"x": rows(5, 4)}),
        "--allow-schema-change",
        "--update-config",
    )
    assert told not in outcome.err


def test_a_branch_on_values_names_its_line(net, convert, tmp_path):
    code = """
    class Net(nn.Module):
        def forward(self, x):
            if x.sum() > 0:
                return x
            return -x
    """
    outcome = convert(net(code, {"x": rows(5, 4)}))
    said = refused(outcome, tmp_path)
    assert outcome.status == 5
    assert "error[export-branch]" in said
    assert "net.py:7 in forward: if x.sum() > 0:" in said


def test_an_axis_that_the_code_fixes_cannot_be_freed(net, convert, tmp_path):
    code = """
    class Net(nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0], 2, 3).sum(1)
    """
    project = net(code, {"x": rows(5, 6)}, export={"dynamic_axes": {"x": {"0": "batch", "1": "width"}}})
    outcome = convert(project)
    assert outcome.status == 3
    assert "error[axis-fixed]" in refused(outcome, tmp_path)


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (
            {"source": {"module": {"file": "net.py", "class": "Other"}}},
            3,
            ["module-class-missing", "it has Net"],
        ),
        ({"source": {"module": {"file": "gone.py", "class": "Net"}}}, 3, ["module-file-missing", "gone.py"]),
        (
            {"source": {"module": {"file": "net.py", "class": "Net", "kwargs": {"width": 5}}}},
            3,
            ["weights-unfit", "lin.weight has shape [3, 4], the module has [5, 4]"],
        ),
        (
            {"source": {"module": {"file": "net.py", "class": "Net", "kwargs": {"depth": 5}}}},
            3,
            ["model-unloadable", "unexpected keyword argument 'depth'"],
        ),
        ({"samples": "gone.npz"}, 3, ["samples-unfit", "gone.npz"]),
        ({"export": {"constants": {"heat": 1}}}, 3, ["option-unfit", "no argument 'heat'"]),
        ({"inputs": [{"name": "y"}]}, 3, ["input-unknown", "Net takes x"]),
        ({"inputs": [{"name": "x", "dims": [5]}]}, 3, ["have dims [4], the recipe says [5]"]),
        ({"outputs": [{"name": "s", "from": "logits"}]}, 3, ["output-unknown", "answers with output"]),
        ({"outputs": [{"name": "s", "from": "output[:, 7]"}]}, 3, ["output-out-of-range"]),
        ({"source": {"method": "predict"}}, 3, ["option-unfit", "method does not apply"]),
        ({"tolerance": {"logits": {"atol": 1}}}, 3, ["tolerance-unknown"]),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else None,
)
def test_recipes_that_do_not_fit_the_module_are_refused(
    net, convert, linear, tmp_path, change, status, words
):
    project = net(linear, {"x": rows(5, 4)})
    project.edit(**change)
    outcome = convert(project)
    said = refused(outcome, tmp_path)
    assert outcome.status == status
    for word in words:
        assert word in said


def test_samples_that_the_module_refuses_are_shown_with_its_own_words(net, convert, linear, tmp_path):
    said = refused(convert(net(linear, {"x": rows(5, 3)})), tmp_path)
    assert "error[samples-refused]" in said
    assert "mat1 and mat2 shapes cannot be multiplied" in said


def test_code_is_imported_only_if_somebody_vouches_for_it(net, convert, tmp_path):
    marker = tmp_path / "ran"
    project = net(
        f"open({str(marker)!r}, 'w').close()\n"
        "class Net(nn.Linear):\n    def __init__(self):\n        super().__init__(4, 2)\n",
        {"x": rows(5, 4)},
    )
    marker.unlink()
    outcome = convert(project, trust=())
    assert outcome.status == 6
    assert "--trust module" in refused(outcome, tmp_path)
    assert not marker.exists()


def test_weights_that_run_code_are_refused_whatever_vouches_for_the_module(net, convert, linear, tmp_path):
    class Trap:
        def __reduce__(self):
            return print, ("trapped",)

    project = net(linear, {"x": rows(5, 4)})
    torch.save({"lin.weight": torch.zeros(3, 4), "trap": Trap()}, project.home / "weights.pt")
    outcome = convert(project)
    assert outcome.status == 6
    said = refused(outcome, tmp_path)
    assert "print" in said
    assert "trapped" not in outcome.out


def test_a_factory_brings_its_own_weights(net, served, linear):
    project = net(linear + "\n    def make():\n        return Net(width=2)\n", {"x": rows(5, 4)})
    project.edit(source={"path": "net.py", "kind": "torch", "module": {"class": "make"}})
    config, _ = served(project)
    assert tensors(config.output) == {"output": ("FP32", [2])}


def test_accuracy_is_measured_on_the_largest_logit(net, served, linear):
    x = rows(40, 4)
    project = net(linear, {"x": x}, budget={"accuracy_drop": 0.0}, labels="labels.npy")
    with torch.no_grad():
        truth = project.module()(torch.from_numpy(x)).argmax(1).numpy()
    truth[:4] = (truth[:4] + 1) % 3
    np.save(project.home / "labels.npy", truth)
    _, outcome = served(project)
    assert "accuracy 0.9, the model's is 0.9" in outcome.out
