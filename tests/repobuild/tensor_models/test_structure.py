"""Names of outputs follow the structure of what forward returns."""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import pytest
import torch

from repobuild.errors import InputInvalid
from repobuild.worker.torch_structure import Unnameable, tensors_of

A, B, C = (torch.full((2,), float(n)) for n in range(3))


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None
    loss: float = 0.0


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (A, ["output"]),
        ((A, B), ["output_0", "output_1"]),
        ([A], ["output_0"]),
        ({"score": A, "aux": B}, ["score", "aux"]),
        (OrderedDict(b=B, a=A), ["b", "a"]),
        (Pair(A, B), ["left", "right"]),
        (Answer(A), ["logits"]),
        (Answer(A, B), ["logits", "hidden"]),
        ({"states": (A, B), "y": C}, ["states_0", "states_1", "y"]),
        ((A, {"k": B}, (C,)), ["output_0", "output_1_k", "output_2_0"]),
        ((A, None, 3, "text", True), ["output_0"]),
        ({0: A, 1: B}, ["0", "1"]),
    ],
    ids=str,
)
def test_names_follow_the_structure(answer, names):
    assert list(tensors_of(answer)) == names


def test_the_order_is_that_of_the_structure():
    found = tensors_of({"z": C, "a": (A, B)})
    assert [float(t[0]) for t in found.values()] == [2.0, 0.0, 1.0]


def test_what_is_no_tensor_is_named_with_its_place():
    with pytest.raises(Unnameable, match=r"boxes is a builtins\.object"):
        tensors_of({"boxes": object()})


def test_two_tensors_of_one_name_are_refused():
    with pytest.raises(InputInvalid) as caught:
        tensors_of({"a_0": A, "a": (B,)})
    assert caught.value.code == "output-names-clash"
    assert "'a_0'" in caught.value.message
