"""A PyTorch module inside the child process: how it is called, what it answers, its ONNX form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repobuild.errors import InputInvalid, evidence
from repobuild.tensors import Array, Batch
from repobuild.worker.loading import first_line
from repobuild.worker.tensor_model import Declined
from repobuild.worker.torch_export import write_onnx
from repobuild.worker.torch_observed import Observed
from repobuild.worker.torch_signature import Calling, Given, match_arguments
from repobuild.worker.torch_structure import Unnameable, tensors_of

if TYPE_CHECKING:
    from repobuild.worker.script_maker import Scriptable

REFUSALS = (RuntimeError, ValueError, IndexError, TypeError, AssertionError, KeyError, NotImplementedError)
"""What modules raise on inputs that they do not take."""


class TorchModel:
    """A module in eval mode.

    Args:
        module: The module.
        given: The model file as the recipe has it.
        said: What recipe and samples say about its arguments.
        notes: What was noticed while loading.

    Raises:
        InputInvalid: The samples do not feed its forward.
    """

    def __init__(self, module: Any, given: str, said: Given, notes: Sequence[str] = ()) -> None:
        self._module = module
        self._given = given
        self._said = said
        self._name = f"{type(module).__module__}.{type(module).__qualname__}"
        self._calling = match_arguments(_parameters(module), said, type(module).__name__)
        self._notes = [*notes, *self._calling.notes]
        self._observed = Observed(module)

    def description(self) -> dict[str, Any]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.description`."""
        return describe_module(self._module, self._display(), self._calling, self._said, self._notes)

    def ask(self, request: Batch) -> dict[str, Array]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.ask`."""
        return ask_module(self._module, self._calling, self._said, request, self._observed)

    def observed(self) -> list[str]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.observed`."""
        return self._observed.notes()

    def export(
        self, opset: int | None, to: Path, example: Batch, free: Mapping[str, Mapping[int, str]]
    ) -> dict[str, Any]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.export`."""
        import torch

        inputs = to_tensors(example, self._said, self._calling.names, cast=False)
        wrapped, names = wrap(self._module, self._calling, self._said)
        dims = tuple(
            dict.fromkeys(free.get(name, {}), torch.export.Dim.DYNAMIC) or None
            for name in self._calling.names
        )
        return write_onnx(
            lambda: torch.export.export(
                wrapped, tuple(inputs.values()), dynamic_shapes=(dims,), strict=False
            ),
            names,
            self._calling.names,
            opset,
            to,
            self._display(),
        )

    @property
    def given(self) -> str:
        """See :class:`repobuild.worker.tensor_model.ScriptableModel`."""
        return self._given

    def scriptable(self) -> Scriptable:
        """See :class:`repobuild.worker.tensor_model.ScriptableModel`."""
        from repobuild.worker.script_maker import SCRIPT, TRACE, Scriptable, examined

        return Scriptable(self._module, self._calling, self._said, (SCRIPT, TRACE), examined)

    def _display(self) -> str:
        from repobuild.worker.torch_loading import ENTRY

        return self._name.removeprefix(f"{ENTRY}.")


def describe_module(
    module: Any, name: str, calling: Calling, said: Given, notes: Sequence[str]
) -> dict[str, Any]:
    """The description of anything that is called as a module is."""
    from repobuild.worker.torch_loading import torch_versions

    columns = {c["name"]: c for c in (said.layout or {}).get("columns", ())}
    numbers = sum(p.numel() for p in module.parameters())
    return {
        "model": name,
        "facts": {
            "notes": list(notes),
            "parameters": numbers,
            "constants": {k: repr(v) for k, v in calling.constants.items()},
            "weights": sorted({str(p.dtype).removeprefix("torch.") for p in module.parameters()}),
        },
        "tools": torch_versions(),
        "inputs": [
            {
                "name": a.name,
                "sample": a.sample,
                "dtype": said.wire_type(a.name),
                "shape": [None] * len(columns[a.sample]["shape"]),
            }
            for a in calling.arguments
        ],
    }


def ask_module(
    module: Callable[..., Any], calling: Calling, said: Given, request: Batch, observed: Observed
) -> dict[str, Array]:
    """One call, and the tensors of its answer as arrays; bfloat16 becomes float32, which holds it exactly.

    Raises:
        Declined: It refuses the request.
        InputInvalid: It answers with something that is no tensor, or of a type that nothing carries.
    """
    import torch

    tensors = to_tensors(request, said, calling.names)
    try:
        with torch.no_grad():
            answer = calling.call(module, tensors)
    except REFUSALS as problem:
        raise Declined(f"{type(problem).__name__}: {first_line(problem)}") from problem
    try:
        found = tensors_of(answer)
        observed.answered(answer)
    except Unnameable as problem:
        raise InputInvalid(
            "output-kind",
            "the model answers with something that is no tensor",
            evidence([str(problem)]),
            "return tensors, or a tuple, dict or dataclass of them",
        ) from None
    if not found:
        raise InputInvalid(
            "output-kind",
            "the model answers with no tensor at all",
            evidence([f"the answer is a {type(answer).__module__}.{type(answer).__qualname__}"]),
            "return tensors, or a tuple, dict or dataclass of them",
        )
    return {name: _array(name, tensor) for name, tensor in found.items()}


def to_tensors(request: Batch, said: Given, names: Sequence[str], *, cast: bool = True) -> dict[str, Any]:
    """One tensor an input, in the types that the recipe says, where ``cast`` asks for them."""
    import numpy as np
    import torch

    found = {}
    for name in names:
        array = np.ascontiguousarray(request[name]) if request[name].ndim else request[name]
        try:
            tensor = torch.from_numpy(array.copy())
        except TypeError:
            raise Declined(f"PyTorch has no tensors of {array.dtype} ('{name}')") from None
        wanted = said.torch_type(name) if cast else None
        found[name] = tensor if wanted is None else tensor.to(torch_type(wanted))
    return found


def torch_type(name: str) -> Any:
    """PyTorch's element type of that name.

    Raises:
        InputInvalid: There is none.
    """
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise InputInvalid(
            "option-unfit",
            f"PyTorch has no element type '{name}'",
            evidence([f"export.sample_dtype names {name}"]),
            "write float32, float16, bfloat16, int64, int32, bool, ...",
        )
    return found


def wrap(module: Any, calling: Calling, said: Given) -> tuple[Any, Callable[[], list[str]]]:
    """A module that takes the inputs by position and answers with a flat tuple; and, once called, its names.

    Exporters name and order inputs and outputs in ways of their own; a flat module leaves them no choice.
    """
    import torch

    seen: list[str] = []

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *inputs: Any) -> Any:
            named = {}
            for name, tensor in zip(calling.names, inputs, strict=True):
                wanted = said.torch_type(name)
                named[name] = tensor if wanted is None else tensor.to(torch_type(wanted))
            found = tensors_of(calling.call(self.inner, named))
            seen[:] = list(found)
            return tuple(t.to(torch.float32) if t.dtype == torch.bfloat16 else t for t in found.values())

    return Flat().eval(), lambda: list(seen)


def _array(name: str, tensor: Any) -> Array:
    import numpy as np
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.dtype.is_complex:
        kind = tensor.dtype if tensor.layout == torch.strided else tensor.layout
        raise InputInvalid(
            "output-kind",
            f"the answer '{name}' is of a kind that no tensor on the wire has: {kind}",
            evidence([f"'{name}' has {tensor.dtype} and {tensor.layout}"]),
            "return real, dense tensors, for instance with torch.view_as_real",
        )
    plain = tensor.detach().cpu()
    if plain.dtype == torch.bfloat16:
        plain = plain.to(torch.float32)
    found: Array = np.asarray(plain.contiguous().numpy())
    return found


def _parameters(module: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(module.forward).parameters.values())
