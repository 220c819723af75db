"""A TorchScript archive inside the child process.

PyTorch's newer exporter does not take TorchScript, so the older one, which walks its graph, is used; it keeps
branches and loops, and what it makes of them is compared on both sides of every branch.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from repobuild.errors import ConversionFailed, evidence
from repobuild.tensors import Array, Batch
from repobuild.worker.arrays import writing
from repobuild.worker.script_maker import SCRIPT, Scriptable
from repobuild.worker.torch_errors import export_failed
from repobuild.worker.torch_export import quiet
from repobuild.worker.torch_model import ask_module, describe_module, to_tensors
from repobuild.worker.torch_observed import Observed
from repobuild.worker.torch_signature import Given, match_arguments
from repobuild.worker.torch_structure import expressions_of

FLAT = """import torch


class Flat(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self{arguments}):
        o = self.inner({passed})
        return ({parts})
"""

LEGACY_OPSET = 17
"""The opset that PyTorch's older exporter knows best; it stops at 20 (torch/onnx/_constants.py)."""


class ScriptModel:
    """A TorchScript module in eval mode.

    Args:
        script: The module.
        given: The model file as the recipe has it.
        said: What recipe and samples say about its arguments.
        notes: What was noticed while loading.

    Raises:
        InputInvalid: The samples do not feed its forward.
    """

    def __init__(self, script: Any, given: str, said: Given, notes: Sequence[str] = ()) -> None:
        self._script = script
        self._given = given
        self._said = said
        self._name = f"TorchScript {script.original_name}"
        self._calling = match_arguments(_parameters(script), said, script.original_name)
        self._notes = [*notes, *self._calling.notes]
        self._observed = Observed(script)

    def description(self) -> dict[str, Any]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.description`."""
        return describe_module(self._script, self._name, self._calling, self._said, self._notes)

    def ask(self, request: Batch) -> dict[str, Array]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.ask`."""
        return ask_module(self._script, self._calling, self._said, request, self._observed)

    def observed(self) -> list[str]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.observed`."""
        return self._observed.notes()

    def export(
        self, opset: int | None, to: Path, example: Batch, free: Mapping[str, Mapping[int, str]]
    ) -> dict[str, Any]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.export`."""
        import torch

        from repobuild.worker.script_weights import frozen, put_weights

        self._refuse_quantised()
        answers = list(self.ask(example))
        names = self._calling.names
        tensors = to_tensors(example, self._said, names)
        inputs = [f"in:{i}" for i in range(len(names))]
        with quiet() as heard, writing("the ONNX file"):
            try:
                whole = frozen(self._flat(example))
                torch.onnx.export(
                    whole,
                    tuple(tensors.values()),
                    str(to),
                    dynamo=False,
                    export_params=False,
                    do_constant_folding=False,
                    opset_version=opset or LEGACY_OPSET,
                    input_names=inputs,
                    output_names=[f"out:{i}" for i in range(len(answers))],
                    dynamic_axes={
                        f"in:{i}": dict(free[name]) for i, name in enumerate(names) if free.get(name)
                    },
                )
            except (MemoryError, OSError):
                raise
            except Exception as problem:
                raise export_failed(problem, self._given) from problem
            put_weights(to, whole, inputs, self._given)
        return {
            "answers": {name: f"out:{i}" for i, name in enumerate(answers)},
            "inputs": dict(zip(names, inputs, strict=True)),
            "notes": heard,
            "exporter": f"torch.onnx (TorchScript) {torch.__version__}",
            "branches": list(_branches(whole.graph)),
        }

    @property
    def given(self) -> str:
        """See :class:`repobuild.worker.tensor_model.ScriptableModel`."""
        return self._given

    def scriptable(self) -> Scriptable:
        """See :class:`repobuild.worker.tensor_model.ScriptableModel`."""
        return Scriptable(self._script, self._calling, self._said, (SCRIPT,))

    def _flat(self, example: Batch) -> Any:
        """The script, its inputs in order, constants filled in, its answer a flat tuple.

        The older exporter knows neither keyword arguments nor dicts.
        """
        import torch

        tensors = to_tensors(example, self._said, self._calling.names)
        with torch.no_grad():
            parts = expressions_of(self._calling.call(self._script, tensors))
        arguments = [f"a{i}" for i in range(len(self._calling.names))]
        named = list(zip(self._calling.names, arguments, strict=True))
        if self._calling.dict_argument is not None:
            entries = ", ".join(f"{name!r}: {a}" for name, a in named)
            passed = [f"{self._calling.dict_argument}={{{entries}}}"]
        else:
            passed = [f"{name}={a}" if name.isidentifier() else a for name, a in named]
        passed.extend(f"{name}={value!r}" for name, value in self._calling.constants.items())
        code = FLAT.format(
            arguments="".join(f", {a}" for a in arguments),
            passed=", ".join(passed),
            parts=", ".join(parts) + ",",
        )
        file = Path("flat_script.py").absolute()
        file.write_text(code, encoding="utf-8")  # TorchScript is compiled from source files only
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return torch.jit.script(made.Flat(self._script).eval()).eval()

    def _refuse_quantised(self) -> None:
        found = sorted({k for k in _kinds(self._script.inlined_graph) if k.startswith("quantized::")})
        if found:
            raise ConversionFailed(
                "export-quantised",
                f"{self._given} is a quantised model (int8), whose operators have no ONNX form",
                evidence([f"it uses {', '.join(found[:8])}"]),
                "convert the model before it was quantised, and let repobuild quantise the graph:"
                " targets: [{kind: onnxruntime, precision: int8}]; or serve it with the target pytorch",
            )


def _kinds(graph: Any) -> Iterator[str]:
    for node in graph.nodes():
        yield node.kind()
        for block in node.blocks():
            yield from _kinds(block)


def _branches(graph: Any) -> Iterator[str]:
    """Where each branch and loop of a TorchScript graph was written, as ``file:line``."""
    for node in graph.nodes():
        if node.kind() in ("prim::If", "prim::Loop"):
            where = str(node.sourceRange()).strip().splitlines()
            told = next((line for line in where if "<--- HERE" not in line and line.strip()), node.kind())
            yield told.strip()[:200]
        for block in node.blocks():
            yield from _branches(block)


def _parameters(script: Any) -> list[inspect.Parameter]:
    """The arguments of a script's forward, as Python has them."""
    found = []
    for argument in script.forward.schema.arguments[1:]:
        has_default = argument.has_default_value()
        found.append(
            inspect.Parameter(
                argument.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=argument.default_value if has_default else inspect.Parameter.empty,
            )
        )
    return found
