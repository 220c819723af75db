"""Weights of TorchScript on their way into an ONNX file, which never holds them in memory once more.

PyTorch's older exporter copies weights that it writes several times. So it is given a script whose weights
are no constants, told to leave them out, and they are streamed into a file beside the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import ConversionFailed, evidence
from repobuild.graph.external import attach, load_graph


def frozen(script: Any) -> Any:
    """The script as one graph in which attributes are constants, but for parameters and buffers.

    What :func:`torch.jit.freeze` does besides, folding weights into each other, changes sums.
    """
    import torch

    recursive: Any = torch.jit._recursive  # noqa: SLF001
    made = torch._C._freeze_module(script._c, [], True, True)  # noqa: SLF001 - torch.jit.freeze keeps none
    found = recursive.wrap_cpp_module(made)
    torch._C._jit_pass_peephole(found.graph, False)  # noqa: SLF001 - takes dicts apart
    return found


def put_weights(graph: Path, script: Any, inputs: Sequence[str], given: str) -> None:
    """Give an exported graph the weights that it lists as inputs.

    Args:
        graph: ONNX file, which is replaced; large weights go into ``<name>.data`` beside it.
        script: What it was exported from.
        inputs: The inputs that are none.
        given: The model as the recipe has it, for messages.

    Raises:
        ConversionFailed: ``export-incomplete``: the exporter made weights that the script has not.
        OSError: A file cannot be written.
    """
    proto = load_graph(graph)
    have = dict(_tensors(script))
    wanted = [value.name for value in proto.graph.input if value.name not in inputs]
    unknown = [name for name in wanted if name not in have]
    if unknown:
        raise ConversionFailed(
            "export-incomplete",
            f"the exporter of PyTorch takes weights of {given} that the file has not",
            evidence([", ".join(unknown[:8])]),
            "export the module itself in place of the TorchScript archive",
        )
    kept = [type(v).FromString(v.SerializeToString()) for v in proto.graph.input if v.name in inputs]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    attach(proto, ((name, *_array(have[name])) for name in wanted), graph)


def _tensors(script: Any) -> Iterator[tuple[str, Any]]:
    yield from script.named_parameters()
    yield from script.named_buffers()


def _array(tensor: Any) -> tuple[int, list[int], Any]:
    """ONNX element type, dims and bytes of a tensor."""
    import torch
    from onnx import TensorProto, helper

    plain = tensor.detach().contiguous()
    dims = list(plain.shape)
    if plain.dtype == torch.bfloat16:
        return TensorProto.BFLOAT16, dims, plain.view(torch.int16).numpy()
    array = plain.numpy()
    return helper.np_dtype_to_tensor_dtype(array.dtype), dims, array
