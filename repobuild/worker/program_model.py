"""An exported program (``.pt2``) inside the child process; its free axes and their bounds are its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from repobuild.tensors import Array, Batch
from repobuild.worker.script_maker import TRACE, Scriptable, examined
from repobuild.worker.script_program import traceable
from repobuild.worker.torch_export import LEAST_BY_CONVENTION, finite, write_onnx
from repobuild.worker.torch_model import ask_module, describe_module
from repobuild.worker.torch_observed import Observed
from repobuild.worker.torch_signature import Argument, Given, match_arguments


class ProgramModel:
    """An exported program.

    Args:
        program: The program.
        given: The model file as the recipe has it.
        said: What recipe and samples say about its arguments.

    Raises:
        InputInvalid: The samples do not feed it.
    """

    def __init__(self, program: Any, given: str, said: Given) -> None:
        self._program = program
        self._given = given
        self._said = said
        self._module = program.module()
        self._calling = match_arguments(_parameters(program), said, "the program")
        self._names: list[str] = []
        self._observed = Observed(self._module)

    def description(self) -> dict[str, Any]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.description`."""
        found = describe_module(
            self._module, "torch.export.ExportedProgram", self._calling, self._said, self._calling.notes
        )
        shapes = self._shapes()
        bounds = self._bounds()
        for item in found["inputs"]:
            item["shape"] = shapes[item["name"]]
            item["bounds"] = {
                label: bounds[label] for label in shapes[item["name"]] if isinstance(label, str)
            }
        return found

    def ask(self, request: Batch) -> dict[str, Array]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.ask`."""
        found = ask_module(self._module, self._calling, self._said, request, self._observed)
        self._names = list(found)
        return found

    def observed(self) -> list[str]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.observed`."""
        return self._observed.notes()

    def export(
        self, opset: int | None, to: Path, example: Batch, free: Mapping[str, Mapping[int, str]]
    ) -> dict[str, Any]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.export`; the program's own axes are free."""
        if not self._names:
            self.ask(example)
        return write_onnx(
            lambda: self._program,
            lambda: self._names,
            [a.name for a in self._in_order()],
            opset,
            to,
            self._given,
        )

    @property
    def given(self) -> str:
        """See :class:`repobuild.worker.tensor_model.ScriptableModel`."""
        return self._given

    def scriptable(self) -> Scriptable:
        """See :class:`repobuild.worker.tensor_model.ScriptableModel`."""
        return Scriptable(traceable(self._program), self._calling, self._said, (TRACE,), self._examined)

    def _examined(self, wrapper: Any, inputs: Sequence[Any]) -> list[Any]:
        """The program is such an examination already; its own outputs tell the shapes of its answers."""
        return examined(wrapper, inputs)

    def _in_order(self) -> list[Argument]:
        order = list(_leaves(self._program))
        return sorted(self._calling.arguments, key=lambda a: order.index(a.name))

    def _shapes(self) -> dict[str, list[int | str]]:
        shapes: dict[str, list[int | str]] = {}
        for name, placeholder in _leaves(self._program).items():
            value = placeholder.meta["val"]
            shapes[name] = [int(d) if isinstance(d, int) else str(d) for d in value.shape]
        return shapes

    def _bounds(self) -> dict[str, list[int | None]]:
        """``[least, most]`` of each free axis, ``None`` where the program sets no bound."""
        found: dict[str, list[int | None]] = {}
        for symbol, allowed in self._program.range_constraints.items():
            low = finite(allowed.lower) or 0
            found[str(symbol)] = [low if low > LEAST_BY_CONVENTION else 1, finite(allowed.upper)]
        for shape in self._shapes().values():
            for label in shape:
                if isinstance(label, str):
                    found.setdefault(label, [0, None])
        return found


def _leaves(program: Any) -> dict[str, Any]:
    """The placeholder of each user input, by the argument's name where every argument is one tensor."""
    wanted = list(program.graph_signature.user_inputs)
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    return {p.name: nodes[w] for p, w in zip(_parameters(program), wanted, strict=True)}


def _parameters(program: Any) -> list[Any]:
    """The arguments of the program's forward, as Python has them."""
    import inspect

    spec = program.call_spec.in_spec
    arguments, named = spec.children() if hasattr(spec, "children") else spec.children_specs
    count = arguments.num_children
    keys = list(named.context or ())
    inputs = list(program.graph_signature.user_inputs)
    positional = [inspect.Parameter(str(name), inspect.Parameter.POSITIONAL_ONLY) for name in inputs[:count]]
    return [*positional, *(inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY) for k in keys)]
