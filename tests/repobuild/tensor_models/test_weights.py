"""Weights fit their module, or every key that does not is named."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from repobuild.errors import InputInvalid
from repobuild.worker.torch_weights import fit_weights, read_weights


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids))


def two():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def fit(module, found):
    return list(fit_weights(module, found, "w.pt"))


def same(left, right):
    return all(
        torch.equal(a, b)
        for a, b in zip(left.state_dict().values(), right.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("how", ["zip", "legacy", "safetensors"])
def test_every_way_to_save_weights(tmp_path, how):
    want, file = two(), tmp_path / "w"
    if how == "safetensors":
        save_file(want.state_dict(), file)
    else:
        torch.save(want.state_dict(), file, _use_new_zipfile_serialization=how == "zip")
    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    assert fit(module, read_weights(file, "w")) == []
    assert same(module, want)


@pytest.mark.parametrize(
    ("wrap", "note"),
    [
        (lambda w: {"state_dict": w, "epoch": 3}, "from 'state_dict' of the checkpoint"),
        (lambda w: {"model": w, "optimizer": {"lr": 1}}, "from 'model' of the checkpoint"),
        (lambda w: {f"module.{k}": v for k, v in w.items()}, "begin with 'module.'"),
        (lambda w: {f"_orig_mod.{k}": v for k, v in w.items()}, "begin with '_orig_mod.'"),
        (
            lambda w: {"state_dict": {f"model.{k}": v for k, v in w.items()}},
            "from 'state_dict' of the checkpoint; the weights' keys begin with 'model.'",
        ),
        (lambda w: {f"model.module.{k}": v for k, v in w.items()}, "begin with 'model.'"),
    ],
    ids=["checkpoint", "model", "parallel", "compiled", "lightning", "lightning-parallel"],
)
def test_wrapped_weights_are_unwrapped_with_a_note(wrap, note):
    want, module = two(), nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    (told,) = fit(module, wrap(want.state_dict()))
    assert note in told
    assert same(module, want)


def test_keys_and_shapes_that_do_not_fit_are_named():
    found = two().state_dict()
    found["2.weight"] = found.pop("1.weight")
    found["0.bias"] = torch.zeros(7)
    before = two()
    module = two()
    with pytest.raises(InputInvalid) as caught:
        fit(module, found)
    assert caught.value.code == "weights-unfit"
    assert [e.text for e in caught.value.evidence] == [
        "missing in the file: 1.weight",
        "unexpected in the file: 2.weight",
        "0.bias has shape [7], the module has [4]",
    ]
    assert same(module, before)


def test_shared_parameters_stay_shared_also_where_the_file_names_them_once():
    want = Tied()
    found = {"embed.weight": torch.arange(15.0).reshape(5, 3)}
    assert fit(want, found) == []
    assert want.head.weight is want.embed.weight
    assert torch.equal(want.head.weight, found["embed.weight"])


def test_weights_of_another_type_are_converted_with_a_note():
    module = two()
    found = {k: v.half() if v.is_floating_point() else v for k, v in two().state_dict().items()}
    (note,) = fit(module, found)
    assert "torch.float16 to torch.float32" in note
    assert module[0].weight.dtype == torch.float32


def test_a_shared_parameter_with_two_values_in_the_file_is_refused():
    found = {"embed.weight": torch.zeros(5, 3), "head.weight": torch.ones(5, 3)}
    with pytest.raises(InputInvalid) as caught:
        fit(Tied(), found)
    assert caught.value.code == "weights-unfit"
    assert "embed.weight and head.weight are one parameter" in caught.value.evidence[0].text
    nan = torch.full((5, 3), torch.nan)
    assert fit(Tied(), {"embed.weight": nan, "head.weight": nan.clone()}) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.to(torch.complex64),
        lambda t: t.double() + 1e300,
        lambda t: t.to("meta"),
    ],
    ids=["complex", "too large", "no values"],
)
def test_weights_that_the_module_would_not_hold_are_refused(change):
    found = two().state_dict()
    found["0.weight"] = change(found["0.weight"])
    with pytest.raises(InputInvalid) as caught:
        fit(two(), found)
    assert caught.value.code == "weights-unfit"
    assert caught.value.evidence[0].text.startswith("0.weight ")


def test_whole_numbers_of_a_module_are_not_rounded_to():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.zeros(2, dtype=torch.int64))

    with pytest.raises(InputInvalid, match="would not hold"):
        fit(Table(), {"table": torch.tensor([0.5, 1.0])})
    assert len(fit(Table(), {"table": torch.tensor([3.0, 1.0])})) == 1


def test_counters_that_pytorch_adds_are_added_with_a_note():
    found = {k: v for k, v in two().state_dict().items() if not k.endswith("num_batches_tracked")}
    (note,) = fit(two(), found)
    assert "1.num_batches_tracked" in note


def test_other_weights_of_a_checkpoint_that_fit_are_named():
    want, other = two().state_dict(), {k: v + 1 for k, v in two().state_dict().items()}
    (note,) = fit(two(), {"model": want, "model_ema": other, "copy": dict(want)})
    assert note.endswith("'model' of the checkpoint; model_ema of it would fit too, with other values")


def test_weights_under_names_that_say_nothing_are_not_chosen_among():
    want, other = two().state_dict(), {k: v + 1 for k, v in two().state_dict().items()}
    with pytest.raises(InputInvalid) as caught:
        fit(two(), {"generator": want, "discriminator": other})
    assert caught.value.code == "weights-unreadable"
    assert "generator, discriminator" in caught.value.evidence[0].text
    (note,) = fit(two(), {"generator": want, "copy": dict(want)})
    assert "from 'generator'" in note


@pytest.mark.parametrize(
    "found",
    [{}, {"a": 1}, [1], torch.zeros(2), {"a": {0: torch.zeros(2)}}],
    ids=["empty", "numbers", "list", "tensor", "numbered"],
)
def test_what_is_no_weights_is_refused(found):
    with pytest.raises(InputInvalid) as caught:
        fit(two(), found)
    assert caught.value.code == "weights-unreadable"


@pytest.mark.parametrize("cut", [40, 400, -30])
def test_files_that_are_cut_off_are_damaged(tmp_path, cut):
    file = tmp_path / "w.pt"
    torch.save(two().state_dict(), file)
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(InputInvalid) as caught:
        read_weights(file, "w.pt")
    assert caught.value.code in ("model-damaged", "weights-unreadable")
    assert "w.pt" in caught.value.message


def test_safetensors_that_are_cut_off_are_damaged(tmp_path):
    file = tmp_path / "w.safetensors"
    save_file(two().state_dict(), file)
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(InputInvalid) as caught:
        read_weights(file, "w.safetensors")
    assert caught.value.code == "model-damaged"
