"""TorchScript archives and exported programs through the command line."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from repobuild.emit.config import read_config
from tests.repobuild.tensor_models.conftest import rows


class OnValues(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.lin(x)
        if bool(x.sum() > 0):
            return y
        return -2 * y + 1


class Rarely(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.lin(x)
        if bool(x.max() > 1e6):
            y = y * 0
        return y


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.lin(x) * scale
        return y, y.argmax(1)


class OneRow(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.fixture
def project(tmp_path):
    """A folder with a saved model, samples and a recipe: ``project("model.pt", save, samples)``."""

    def make(name, save, samples, **recipe):
        torch.manual_seed(0)
        save(tmp_path / name)
        np.savez(tmp_path / "samples.npz", **samples)
        document = {
            "name": "model",
            "source": {"path": name},
            "samples": "samples.npz",
            **recipe,
        }
        (tmp_path / "recipe.yaml").write_text(json.dumps(document))
        return tmp_path / "recipe.yaml"

    return make


pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


def scripted(module):
    return lambda path: torch.jit.script(module().eval()).save(path)


def program(module, example, **options):
    def save(path):
        torch.export.save(torch.export.export(module().eval(), example, **options), path)

    return save


def config_of(tmp_path):
    return read_config(tmp_path / "repository" / "model")[1]


def test_a_branch_on_values_is_kept_and_compared_on_both_sides(project, convert, tmp_path):
    home = project("model.pt", scripted(OnValues), {"x": rows(5, 4)})
    outcome = convert(home, trust=("torchscript",))
    assert outcome.status == 0, outcome.err
    assert config_of(tmp_path).max_batch_size == 0
    assert "depends on the other rows" in outcome.err


def test_a_branch_that_no_sample_takes_is_refused(project, convert, tmp_path):
    home = project("model.pt", scripted(Rarely), {"x": rows(5, 4)})
    outcome = convert(home, trust=("torchscript",))
    assert outcome.status == 5
    assert "error[branch-unseen]" in outcome.err
    assert "1 of 1 branches went one way only (false)" in outcome.err
    assert not (tmp_path / "repository" / "model").exists()
    taken = rows(5, 4)
    taken[4] = 1e7
    home = project("model.pt", scripted(Rarely), {"x": taken})
    assert convert(home, trust=("torchscript",)).status == 0


def test_arguments_and_answers_of_a_script_have_its_names(project, convert, tmp_path):
    samples = {"scale": rows(5, 1), "x": rows(5, 4)}
    assert convert(project("model.pt", scripted(Several), samples), trust=("torchscript",)).status == 0
    config = config_of(tmp_path)
    assert [i.name for i in config.input] == ["x", "scale"]
    assert [o.name for o in config.output] == ["output_0", "output_1"]
    assert config.max_batch_size == 32


def test_a_script_needs_somebody_to_vouch_for_it(project, convert, tmp_path):
    outcome = convert(project("model.pt", scripted(OneRow), {"x": rows(3, 4)}), trust=("module", "pickle"))
    assert outcome.status == 6
    assert "--trust torchscript" in outcome.err
    assert not (tmp_path / "repository" / "model").exists()


def test_a_script_in_training_mode_is_put_into_eval_mode(project, convert):
    def save(path):
        torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).train()).save(path)

    outcome = convert(project("model.pt", save, {"x": rows(3, 4)}), trust=("torchscript",))
    assert outcome.status == 0, outcome.err
    assert "saved in training mode" in outcome.err


def test_a_program_with_a_fixed_batch_is_served_as_it_is(project, convert, tmp_path):
    home = project("model.pt2", program(OneRow, (torch.zeros(2, 4),)), {"x": rows(2, 4)})
    outcome = convert(home, trust=())
    assert outcome.status == 0, outcome.err
    assert "the batch axis is fixed (static)" in outcome.err
    config = config_of(tmp_path)
    assert config.max_batch_size == 0
    assert [list(i.dims) for i in config.input] == [[2, 4]]


def test_bounds_of_a_program_are_kept_in_max_batch_size(project, convert, tmp_path):
    batch = torch.export.Dim("batch", max=16)
    save = program(OneRow, (torch.zeros(3, 4),), dynamic_shapes={"x": {0: batch}})
    assert convert(project("model.pt2", save, {"x": rows(5, 4)}), trust=()).status == 0
    assert config_of(tmp_path).max_batch_size == 16


def test_a_larger_max_batch_size_than_the_program_takes_is_refused(project, convert, tmp_path):
    batch = torch.export.Dim("batch", max=16)
    save = program(OneRow, (torch.zeros(3, 4),), dynamic_shapes={"x": {0: batch}})
    home = project("model.pt2", save, {"x": rows(5, 4)}, serving={"max_batch_size": 32})
    outcome = convert(home, trust=())
    assert outcome.status == 3
    assert "the file's bound is 16" in outcome.err
    assert not (tmp_path / "repository" / "model").exists()


def test_a_program_that_takes_no_single_row_has_no_batch_dimension(project, convert, tmp_path):
    batch = torch.export.Dim("batch", min=4, max=16)
    save = program(OneRow, (torch.zeros(6, 4),), dynamic_shapes={"x": {0: batch}})
    outcome = convert(project("model.pt2", save, {"x": rows(6, 4)}), trust=())
    assert outcome.status == 0, outcome.err
    assert "takes batches of at least 4 rows" in outcome.err
    assert config_of(tmp_path).max_batch_size == 0


def test_a_program_that_is_cut_off_is_damaged(project, convert, tmp_path):
    home = project("model.pt2", program(OneRow, (torch.zeros(2, 4),)), {"x": rows(2, 4)})
    file = tmp_path / "model.pt2"
    file.write_bytes(file.read_bytes()[:-200])
    outcome = convert(home, trust=())
    assert outcome.status == 3
    assert "Traceback" not in outcome.err
