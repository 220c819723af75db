"""From an exported program to an ONNX file, by PyTorch's own exporter."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from repobuild.worker.arrays import writing
from repobuild.worker.torch_errors import export_failed

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
            with torch.no_grad():
                exported = program()
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
            )
        except MemoryError:
            raise
        except Exception as problem:
            raise export_failed(problem, what) from problem
    assert made is not None
    with writing("the ONNX file"):
        made.save(to, external_data=True, keep_initializers_as_inputs=False)
    return {
        "answers": {name: f"out:{i}" for i, name in enumerate(names)},
        "inputs": {name: f"in:{i}" for i, name in enumerate(inputs)},
        "notes": heard,
        "exporter": f"torch.export {torch.__version__}",
    }


@contextlib.contextmanager
def quiet() -> Iterator[list[str]]:
    """Collect the warnings that users can do something about; keep the exporters' chatter in the log."""
    heard: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        level = logging.root.level
        try:
            yield heard
        finally:
            logging.root.setLevel(level)
    texts = [" ".join(str(w.message).split())[:300] for w in caught if _tells(w)]
    heard.extend(dict.fromkeys(texts))


def _tells(warning: Any) -> bool:
    """Whether a warning speaks of the user's model: tracing that fixed something."""
    return type(warning.message).__name__ == "TracerWarning"
