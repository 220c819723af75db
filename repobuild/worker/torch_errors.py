"""What PyTorch's exporters raise, in words that name the operator, the line of the user's code, a way out."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import ConversionFailed, evidence

LIBRARIES = ("torch", "onnxscript", "onnx_ir", "onnx", "numpy", "sympy")
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)\n\s+(?P<code>.+)')
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PLACE = re.compile(r"L\['inputs'\]\[(?P<input>\d+)\]\.size\(\)\[(?P<axis>\d+)\]")
DIMS = re.compile(
    r"^\s*-?\s*(Not all values of .+|.*specialized.*|.*must be.*|Suggested fixes:.*)$", re.MULTILINE
)

BRANCH = (
    "an `if` or `while` asks for the values of a tensor (data-dependent control flow), and a graph is made"
    " before there are any: use torch.where, or torch.cond for two branches; or save the model with"
    " torch.jit.script, which keeps the branch"
)


def user_frame(problem: BaseException) -> str:
    """The last line of the user's own code on the way to an error, as ``file:line in name: code``."""
    best = ""
    for frame in traceback.extract_tb(problem.__traceback__):
        if not _library(frame.filename):
            best = f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}: {frame.line}"
    return best


def export_failed(problem: BaseException, what: str, inputs: Sequence[str] = ()) -> ConversionFailed:
    """The error for a module that torch.export or the ONNX exporter refuses.

    Args:
        problem: What was raised.
        what: The model, for the message.
        inputs: Names of the inputs, in the order of the exported module's arguments.
    """
    chain = list(_chain(problem))
    text = _named("\n".join(str(p) for p in chain), inputs)
    kinds = {type(p).__name__ for p in chain}
    place = _place(text, chain)
    lines = [line for line in (place, *_first_lines(chain)) if line]
    if kinds & {"GuardOnDataDependentSymNode", "UserError"} and "data-dependent" in text.lower():
        message = "its control flow depends on the values of a tensor (a data-dependent branch)"
        return ConversionFailed(
            "export-branch", f"{what} cannot be exported: {message}", evidence(lines), BRANCH
        )
    if "ConstraintViolation" in " ".join(kinds) or "Constraints violated" in text:
        found = list(dict.fromkeys(m.strip().lstrip("- ") for m in DIMS.findall(text)))
        return ConversionFailed(
            "export-dims",
            f"{what} cannot be exported: an axis that should be free is fixed by the code of the module",
            evidence([*found[:6], *([place] if place else [])] or lines),
            "look for sizes that the code fixes: numbers in reshape or view, a Python loop over the axis, a"
            " buffer of one length; or take the axis out of export: dynamic_axes",
        )
    operator = _operator(text)
    if operator:
        return ConversionFailed(
            "export-operator",
            f"{what} cannot be exported: there is no ONNX form of {operator}",
            evidence(lines),
            "use another operator, a newer PyTorch, or serve the model with the target pytorch",
        )
    return ConversionFailed(
        "export-failed",
        f"{what} cannot be exported: PyTorch's exporter refuses it",
        evidence(lines),
        "see whether torch.export.export takes the module with the same samples",
    )


def _named(text: str, inputs: Sequence[str]) -> str:
    """The text without colours, and with the user's names for the exported module's arguments."""

    def name(found: re.Match[str]) -> str:
        number = int(found["input"])
        known = inputs[number] if number < len(inputs) else f"input {number}"
        return f"axis {found['axis']} of '{known}'"

    return PLACE.sub(name, COLOUR.sub("", text))


def _chain(problem: BaseException | None) -> Any:
    seen = set()
    while problem is not None and id(problem) not in seen:
        seen.add(id(problem))
        yield problem
        problem = problem.__cause__ or problem.__context__


def _first_lines(chain: Sequence[BaseException]) -> list[str]:
    found = []
    for problem in chain[:3]:
        lines = [t.strip() for t in COLOUR.sub("", str(problem)).splitlines() if t.strip()]
        if lines:
            found.append(f"{type(problem).__name__}: {lines[0][:400]}")
    return list(dict.fromkeys(found))


def _place(text: str, chain: Sequence[BaseException]) -> str:
    frames = [m for m in FRAME.finditer(text) if not _library(m["file"])]
    if frames:
        last = frames[-1]
        return f"{Path(last['file']).name}:{last['line']} in {last['name']}: {last['code'].strip()}"
    return next((frame for p in chain if (frame := user_frame(p))), "")


def _operator(text: str) -> str:
    for pattern in (
        r"No ONNX function found for <OpOverload\(op='(?P<op>[^']+)'",
        r"No decompositions? .*?(?P<op>aten\.[\w.]+)",
        r"Exporting the operator '(?P<op>[^']+)' to ONNX",
        r"[Uu]nsupported:? .*?(?P<op>(?:aten|prims?|quantized|torchvision)[.:]+[\w.]+)",
        r"No ONNX function found.*?(?P<op>(?:aten|prims?|quantized|torchvision)[.:]+[\w.]+)",
        r"DispatchError.*?(?P<op>(?:aten|prims?|quantized|torchvision)[.:]+[\w.]+)",
    ):
        found = re.search(pattern, text, re.DOTALL)
        if found:
            return found["op"]
    return ""


def _library(file: str) -> bool:
    """Whether a file belongs to Python, PyTorch or this package, and not to the user."""
    parts = Path(file).parts
    if "site-packages" in parts:
        after = parts[parts.index("site-packages") + 1 :]
        return bool(after) and after[0] in LIBRARIES
    return file.startswith("<") or any(Path(file).is_relative_to(home) for home in _HOMES)


_HOMES = (Path(__file__).parents[1], Path(traceback.__file__).parent)
