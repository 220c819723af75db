"""A configuration as Triton's backends complete it, as far as that can be known offline."""

from __future__ import annotations

from repobuild.lint.ensembles import Member
from repobuild.lint.model import Model, View
from repobuild.lint.onnx_file import OnnxInterface, OnnxTensor
from repobuild.lint.onnx_read import TYPES
from repobuild.lint.onnx_rules import DEFAULT_BATCH, batchable


def complete(model: Model, view: View, graph: OnnxInterface | None, *, python_completes: bool) -> Member:
    """The configuration with what the backend adds to it.

    Args:
        model: The model.
        view: Its configuration.
        graph: The newest served ONNX graph, if the model is one and it could be read.
        python_completes: Whether a python model may complete its configuration.
    """
    backend, given = view.effective.backend, view.config
    whole = len(given.input) + len(given.batch_input) > 0 and len(given.output) > 0
    closed = whole or backend in ("ensemble", "pytorch") or (backend == "python" and not python_completes)
    config = type(given)()
    config.CopyFrom(given)
    if closed or backend != "onnxruntime" or graph is None:
        return Member(model, config, closed, closed, closed)
    if config.max_batch_size == 0 and batchable(graph):
        config.max_batch_size = DEFAULT_BATCH
    batched = config.max_batch_size > 0
    for listed, items, known in (
        (graph.inputs, config.input, given.input),
        (graph.outputs, config.output, given.output),
    ):
        for tensor in listed if not known else ():
            _fill(items.add(), tensor, batched=batched)
    return Member(model, config, inputs_known=True, outputs_known=True, batch_known=True)


def _fill(item: object, tensor: OnnxTensor, *, batched: bool) -> None:
    """One tensor as the backend's ``AutoCompleteIO`` writes it."""
    from google.protobuf import text_format

    shape = list(tensor.shape or ())[1 if batched else 0 :]
    lines = [f"dims: {d if d > 0 else -1}" for d in shape]
    if not shape:
        lines.append("dims: 1")
        if batched:
            lines.append("reshape { }")
    if tensor.elem in TYPES:
        lines.append(f"data_type: {TYPES[tensor.elem]}")
    text_format.Parse("\n".join(lines), item)
    item.name = tensor.name  # type: ignore[attr-defined]
