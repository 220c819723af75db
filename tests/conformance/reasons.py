"""Why a case is not served: a small table, and nothing else is an exception."""

from __future__ import annotations

import re
from dataclasses import dataclass

from repobuild.errors import RepobuildError
from tests.conformance.build import CheckFailed


@dataclass(frozen=True)
class Reason:
    """One kind of exception.

    Attributes:
        title: As the page has it.
        code: The builder's error code, ``check`` for a failed comparison.
        pattern: What message or evidence must hold.
    """

    title: str
    code: str
    pattern: str


TYPES = "an input, or every output, has a type that Triton does not carry"
EMPTY = "an input has an axis of size 0, or an answer has no elements to compare"
TRAINING = "an operator of training or of a preview, which ONNX Runtime does not have"
KERNEL = "ONNX Runtime, by its own words, has no implementation for an operator, a type or a mode"
OPSET = "needs an opset that the newest Triton release in the table does not load, and has no older form"
CHANCE = "answers by chance, so that no answer is right"

REASONS = (
    Reason(EMPTY, "input-kind", r"has size 0"),
    Reason(
        TYPES, "input-kind", r"is (of type \w+|a sequence|an optional value.*), which Triton cannot carry"
    ),
    Reason(TYPES, "output-kind", r"which Triton does not carry"),
    Reason(EMPTY, "samples-unfit", r"has size 0"),
    Reason(EMPTY, "check", r"^equal: \w+: the answer is empty, so nothing was compared$"),
    Reason(
        TRAINING, "model-unloadable", r"ai\.onnx\.preview[.\w]*:\w+\(-1\) is not a registered function/op"
    ),
    Reason(
        KERNEL, "model-unloadable", r"NOT_IMPLEMENTED : (Could not find an implementation|Failed to find ker)"
    ),
    Reason(KERNEL, "model-unloadable", r"layout_ == 0 was false. Batchwise recurrent operations"),
    Reason(KERNEL, "model-unloadable", r"ONNX's converter does not raise it: PRelu"),
    Reason(KERNEL, "samples-refused", r"Non per-tensor quantization is not supported"),
    Reason(KERNEL, "samples-refused", r"running Attention node.*attention_helper\.h"),
    Reason(OPSET, "opset-conversion", r"cannot be brought from opset 2[78] down to 26"),
    Reason(CHANCE, "check", r"asked twice, the model answers differently"),
)

TITLES = (TYPES, EMPTY, TRAINING, KERNEL, OPSET, CHANCE)


def reason_of(problem: RepobuildError | CheckFailed) -> str | None:
    """The title of the reason, ``None`` for what is no exception but a fault."""
    if isinstance(problem, CheckFailed):
        code, text = "check", str(problem)
    else:
        code, text = problem.code, " | ".join([problem.message, *(e.text for e in problem.evidence)])
    return next((r.title for r in REASONS if r.code == code and re.search(r.pattern, text)), None)
