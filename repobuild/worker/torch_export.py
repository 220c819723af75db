"""From an exported program to an ONNX file, by PyTorch's own exporter."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from repobuild.worker.arrays import writing
from repobuild.worker.torch_attention import with_plain_attention
from repobuild.worker.torch_errors import export_failed

NO_BOUND = 1 << 31
NATIVE_OPSET = 18
"""The opset that the exporter's operators are written in (torch/onnx/_internal/exporter)."""


def write_onnx(
    program: Callable[[], Any],
    outputs: Callable[[], Sequence[str]],
    inputs: Sequence[str],
    opset: int | None,
    to: Path,
    what: str,
) -> dict[str, Any]:
    """Export a program and write it.

    Args:
        program: Makes the exported program, whose inputs and outputs are flat.
        outputs: Names of its outputs, once it has been made.
        inputs: Names of its inputs.
        opset: Opset to ask for; at least :data:`NATIVE_OPSET` is written.
        to: File to write; large tensors go beside it.
        what: The model, for messages.

    Returns:
        See :meth:`repobuild.worker.tensor_model.TensorModel.export`.

    Raises:
        ConversionFailed: The exporter refuses it.
    """
    import torch

    with quiet() as heard:
        try:
            with torch.no_grad(), faithful():
                exported = with_plain_attention(program())
                names = list(outputs())
                made = torch.onnx.export(
                    exported,
                    (),
                    None,
                    dynamo=True,
                    opset_version=max(opset or NATIVE_OPSET, NATIVE_OPSET),
                    verbose=False,
                    optimize=True,
                    input_names=[f"in:{i}" for i in range(len(inputs))],
                    output_names=[f"out:{i}" for i in range(len(names))],
                    custom_translation_table=translations(),
                )
        except MemoryError:
            raise
        except Exception as problem:
            raise export_failed(problem, what, inputs) from problem
    assert made is not None
    with writing("the ONNX file"):
        made.save(to, external_data=True, keep_initializers_as_inputs=False)
    return {
        "answers": {name: f"out:{i}" for i, name in enumerate(names)},
        "inputs": {name: f"in:{i}" for i, name in enumerate(inputs)},
        "notes": heard,
        "exporter": f"torch.export {torch.__version__}",
        "bounds": axis_bounds(exported, inputs),
    }


@contextlib.contextmanager
def faithful() -> Iterator[None]:
    """Keep both steps of the exporter from fixing what is free.

    Recurrent layers would be unrolled for the length of the example (torch/export/_patches.py), and the CPU's
    fused attention leaves strides behind that the decomposed one has not.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with contextlib.ExitStack() as stack:
        for patch in _recurrent_patches():
            stack.enter_context(patch())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield


def _recurrent_patches() -> Iterator[Callable[[], contextlib.AbstractContextManager[Any]]]:
    """The patches that this PyTorch has; they came with 2.8."""
    try:
        from torch.export import _patches
    except ImportError:
        return
    for name in ("register_lstm_while_loop_decomposition", "register_gru_while_loop_decomposition"):
        patch = getattr(_patches, name, None)
        if patch is not None:
            yield patch


def translations() -> dict[Any, Any]:
    """ONNX forms of operators that the exporter lacks.

    A stable sort is a TopK of the whole axis: ONNX's TopK puts the lower index first among equal values
    (onnx/docs/Operators.md, TopK).
    """
    import torch
    from onnxscript import opset18

    op: Any = opset18

    def stable_sort(self: Any, *, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
        del stable
        length = op.Gather(op.Shape(self), op.Constant(value_ints=[dim]))
        return op.TopK(self, length, axis=dim, largest=int(descending), sorted=1)

    return {torch.ops.aten.sort.stable: stable_sort}


def finite(bound: Any) -> int | None:
    """A bound of a free axis as a number; ``None`` for infinity, of which SymPy and PyTorch have several."""
    text = str(bound)
    found = int(text) if text.removeprefix("-").isdigit() else None
    return None if found is None or found >= NO_BOUND else found


LEAST_BY_CONVENTION = 2
"""PyTorch treats the sizes 0 and 1 as special, and states 2 as the least size of every free axis."""


def axis_bounds(program: Any, inputs: Sequence[str]) -> dict[str, dict[str, list[int | None]]]:
    """Bounds that the code sets on free axes: ``{input: {axis: [least, most]}}``, ``None`` for no bound."""
    found: dict[str, dict[str, list[int | None]]] = {}
    wanted = list(program.graph_signature.user_inputs)
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    for name, node in zip(inputs, wanted, strict=True):
        for axis, size in enumerate(nodes[node].meta["val"].shape):
            expression = getattr(getattr(size, "node", None), "expr", None)
            allowed = program.range_constraints.get(expression)
            if allowed is None:
                continue
            low, high = finite(allowed.lower) or 0, finite(allowed.upper)
            low = low if low > LEAST_BY_CONVENTION else 1
            if low > 1 or high is not None:
                found.setdefault(name, {})[str(axis)] = [low, high]
    return found


@contextlib.contextmanager
def quiet() -> Iterator[list[str]]:
    """Collect the warnings that users can do something about; keep the exporters' chatter in the log."""
    heard: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield heard
    texts = [" ".join(str(w.message).split())[:300] for w in caught if _tells(w)]
    heard.extend(dict.fromkeys(texts))


def _tells(warning: Any) -> bool:
    """Whether a warning speaks of the user's model: tracing that fixed something."""
    return type(warning.message).__name__ == "TracerWarning"
