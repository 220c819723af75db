"""Makes TorchScript of a model inside the child process: a file that Triton's PyTorch backend loads.

Whatever the model is, its script is a thin traced wrapper around it that takes the inputs as they come over
the wire, one tensor an argument, and answers with a tuple of the outputs to serve. Inside is either a
scripted module, with its branches and loops, or what tracing the module gave.
"""

from __future__ import annotations

import inspect
import keyword
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild.errors import ConversionFailed, evidence
from repobuild.tensors import Batch
from repobuild.worker.arrays import writing
from repobuild.worker.loading import first_line
from repobuild.worker.torch_errors import user_frame
from repobuild.worker.torch_model import torch_type
from repobuild.worker.torch_signature import Calling, Given
from repobuild.worker.torch_structure import tensors_of

SCRIPT, TRACE = "script", "trace"
LEFT_OUT = (".debug_pkl",)
"""Records with the text of the user's files and their paths, which nothing needs."""

OWN = ("version", ".data/serialization_id", "byteorder")
"""Records that PyTorch's writer adds by itself."""


@dataclass(frozen=True, slots=True)
class Scriptable:
    """What the held model gives to be made a script of.

    Attributes:
        module: What is called: a module, a script, or the module of an exported program.
        calling: How.
        said: What recipe and samples say about its arguments.
        ways: How it can be made a script, the more faithful first.
        examine: Traces it symbolically with free axes, which fails where values decide what it does; gives
            the shapes of its outputs. ``None`` where PyTorch has no such thing for it.
    """

    module: Any
    calling: Calling
    said: Given
    ways: tuple[str, ...]
    examine: Callable[[Any, Sequence[Any]], Any] | None = None


@dataclass(frozen=True, slots=True)
class Wiring:
    """How the wrapper's inputs and outputs are made of the model's.

    Attributes:
        ranks: Number of axes that the model wants of each input; the wire may have more, of size 1, behind.
        outputs: For each output the answer, and the index to take of it, as
            :class:`repobuild.selection.Selection` has them.
        lowest: Number of axes that every output has at least.
    """

    ranks: Mapping[str, int]
    outputs: Sequence[tuple[str, tuple[slice | int, ...]]]
    lowest: int

    @classmethod
    def read(cls, plan: Mapping[str, Any]) -> Wiring:
        """From the JSON that :meth:`repobuild.sources.tensors_in_child.TensorsInChild.make_script` sends."""
        outputs = [
            (o["answer"], tuple(slice(*p) if isinstance(p, list) else int(p) for p in o["index"]))
            for o in plan["outputs"]
        ]
        return cls(dict(plan["ranks"]), outputs, int(plan["lowest"]))


def make_script(
    model: Scriptable, way: str, wiring: Wiring, example: Batch, to: Path, given: str, *, freeze: bool
) -> dict[str, Any]:
    """Make a script and write it.

    Args:
        model: The model.
        way: One of its ways.
        wiring: Inputs and outputs.
        example: A request as it comes over the wire.
        to: File to write; its stem becomes the archive's name.
        given: The model file, for messages.
        freeze: Fold weights and attributes into the code.

    Returns:
        ``arguments`` (names of forward's arguments), ``shapes`` (of the outputs, ``None`` for axes that are
        free; ``None`` in place of all where nothing declares them), ``devices`` (that the code fixes).

    Raises:
        ConversionFailed: ``script-failed``: PyTorch makes none this way, or the trace would hold a branch.
    """
    import torch

    inner = _scripted(model, given) if way == SCRIPT and not _is_script(model.module) else model.module
    wrapper, arguments = _wrapper(inner, model, wiring)
    inputs = _tensors(example, model.calling.names)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.no_grad():
            script = _traced(wrapper, inputs, given)
    shapes = _shapes(model, wiring, inputs)
    fixed = [w for w in caught if type(w.message).__name__ == "TracerWarning"]
    if fixed and not _is_script(inner) and shapes is None:
        said = " ".join(str(fixed[0].message).split())
        raise ConversionFailed(
            "script-failed",
            f"{given} cannot be traced: Python code looks at values of tensors, and a trace would keep the"
            " one way that it went",
            evidence([f"{Path(fixed[0].filename).name}:{fixed[0].lineno}: {said[:240]}"]),
            "write the branch with torch.where or so that torch.jit.script takes it, and save the script",
        )
    if freeze:
        try:
            script = torch.jit.freeze(script.eval(), optimize_numerics=False)
        except RuntimeError as problem:
            raise _failed(given, "torch.jit.freeze", problem) from problem
    with writing("the TorchScript file"):
        _save(script, to)
    return {"arguments": list(arguments), "shapes": shapes, "devices": sorted(_devices(script))}


def _is_script(module: Any) -> bool:
    import torch

    return isinstance(module, torch.jit.ScriptModule)


def _scripted(model: Scriptable, given: str) -> Any:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.jit.script(model.module).eval()
        except (MemoryError, OSError) as problem:
            # OSError is what inspect raises for a class without source code.
            if isinstance(problem, MemoryError):
                raise
            raise _failed(given, "torch.jit.script", problem) from problem
        except Exception as problem:
            raise _failed(given, "torch.jit.script", problem) from problem


def _traced(wrapper: Any, inputs: Sequence[Any], given: str) -> Any:
    import torch

    try:
        return torch.jit.trace(  # type: ignore[no-untyped-call]
            wrapper, tuple(inputs), check_trace=False, strict=False
        )
    except MemoryError:
        raise
    except Exception as problem:
        raise _failed(given, "torch.jit.trace", problem) from problem


def _failed(given: str, tool: str, problem: BaseException) -> ConversionFailed:
    lines = [t.strip() for t in str(problem).splitlines() if t.strip()]
    here = next((i for i, t in enumerate(lines) if "<--- HERE" in t), None)
    code = [lines[here - 1]] if here else []
    frame = user_frame(problem)
    return ConversionFailed(
        "script-failed",
        f"{tool} refuses {given}",
        evidence([f"{type(problem).__name__}: {first_line(problem)}", *code, *([frame] if frame else [])]),
        "see which part of the module TorchScript does not know, or serve the model as ONNX:"
        " targets: [onnxruntime]",
    )


def _wrapper(inner: Any, model: Scriptable, wiring: Wiring) -> tuple[Any, tuple[str, ...]]:
    """The wrapper in eval mode, and the names of its arguments."""
    import torch

    names = model.calling.names
    arguments = argument_names(names)

    class Served(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = inner

        def forward(self, *inputs: Any) -> Any:
            fed = {
                name: _inward(tensor, wiring.ranks[name], model.said.torch_type(name))
                for name, tensor in zip(names, inputs, strict=True)
            }
            found = tensors_of(model.calling.call(self.model, fed))
            return tuple(_outward(found[answer], index, wiring.lowest) for answer, index in wiring.outputs)

    # The names of a traced forward are those of its signature.
    signature = inspect.Signature(
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("self", *arguments)]
    )
    Served.forward.__signature__ = signature  # type: ignore[attr-defined]
    served = Served()
    served.training = False  # only the wrapper's: the module of an exported program has no eval()
    return served, arguments


def argument_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names for forward: the inputs' own where all of them can be names there, else numbered ones."""
    good = all(n.isidentifier() and n.isascii() and not keyword.iskeyword(n) and n != "self" for n in names)
    return tuple(names) if good else tuple(f"INPUT__{i}" for i in range(len(names)))


def _inward(tensor: Any, rank: int, wanted: str | None) -> Any:
    for _ in range(tensor.dim() - rank):
        tensor = tensor.squeeze(-1)
    return tensor if wanted is None else tensor.to(torch_type(wanted))


def _outward(tensor: Any, index: tuple[slice | int, ...], lowest: int) -> Any:
    import torch

    picked = tensor[index] if index else tensor
    if picked.dtype == torch.bfloat16:
        picked = picked.to(torch.float32)
    for _ in range(lowest - picked.dim()):
        picked = picked.unsqueeze(-1)
    return picked


def _tensors(example: Batch, names: Sequence[str]) -> list[Any]:
    import numpy as np
    import torch

    return [torch.from_numpy(np.array(example[name])) for name in names]


def _shapes(model: Scriptable, wiring: Wiring, inputs: Sequence[Any]) -> list[list[int | None]] | None:
    """The shapes of the outputs as PyTorch derives them from free axes; ``None`` where it cannot.

    Success means more: nothing that the model does depends on the values of a tensor.
    """
    import torch

    if model.examine is None:
        return None
    plain, _ = _wrapper(model.module, model, wiring)
    try:
        with torch.no_grad():
            tensors = model.examine(plain, inputs)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - torch.export refuses in many ways; the caller then knows less
        return None
    return [[d if isinstance(d, int) else None for d in t.shape] for t in tensors]


def examined(wrapper: Any, inputs: Sequence[Any]) -> list[Any]:
    """Stand-ins of the outputs, by torch.export with every axis free that can be.

    Raises:
        Exception: torch.export refuses, for instance since values decide what the module does.
    """
    import torch

    dims = tuple(dict.fromkeys(range(t.dim()), torch.export.Dim.AUTO) for t in inputs)
    program = torch.export.export(wrapper, tuple(inputs), dynamic_shapes=(dims,), strict=False)
    outputs = next(n for n in program.graph.nodes if n.op == "output").args[0]
    return [n.meta["val"] for n in outputs]


def _save(script: Any, to: Path) -> None:
    """Write a script without the text and the paths of the files that it was made from."""
    import torch

    whole = to.with_name(f"{to.stem}.whole{to.suffix}")
    script.save(str(whole))
    reader = torch._C.PyTorchFileReader(str(whole))  # noqa: SLF001 - PyTorch has no public one
    writer = torch._C.PyTorchFileWriter(str(to))  # noqa: SLF001 - likewise
    for name in reader.get_all_records():
        if not name.endswith(LEFT_OUT) and name not in OWN:
            data = reader.get_record(name)
            writer.write_record(name, data, len(data))
    writer.write_end_of_file()
    whole.unlink()


def _devices(script: Any) -> set[str]:
    """Devices that the code of a script names, such as those that tracing wrote down for ``torch.zeros``."""
    import torch

    found: set[str] = set()

    def walk(graph: Any) -> None:
        for node in graph.nodes():
            if node.kind() == "prim::Constant" and isinstance(
                node.output().type(),
                torch._C.DeviceObjType,  # noqa: SLF001 - PyTorch has no public name
            ):
                found.add(str(node.output().toIValue()))
            for block in node.blocks():
                walk(block)

    walk(script.inlined_graph)
    return found - {"None"}
