"""What calls of a module show beside tensors: parts of answers that none carries, and what changes in it."""

from __future__ import annotations

from typing import Any

from repobuild.worker.torch_structure import others_of

SHOWN = 8
DEPTH = 3
MOST_ITEMS = 1000


class Observed:
    """Looks at a module between calls.

    Args:
        module: The module, or what stands for it; TorchScript hides attributes that are no tensors.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._first: dict[str, Any] | None = None
        self._held: list[Any] = []
        self._others: dict[str, str] = {}
        self._calls = 0

    def answered(self, answer: Any) -> None:
        """Look at an answer, and at what the call left behind.

        What the first call changes is not held against the module: caches are filled then.
        """
        self._others.update(others_of(answer))
        self._calls += 1
        if self._first is None:
            self._first = self._state()

    def notes(self) -> list[str]:
        """What a user of the served model should know of it."""
        found = []
        if self._others:
            told = [f"'{name}' ({kind})" for name, kind in self._others.items()]
            found.append(f"parts of the answer that are no tensors are not served: {_listed(told)}")
        first, now = self._first, self._state()
        if first is not None and first != now:
            changed = [n for n in {**first, **now} if first.get(n) != now.get(n)]
            found.append(
                f"forward changes the module itself ({_listed(changed)}), and the served model does not:"
                f" {self._calls} calls showed no answer that depends on it, and later ones were not compared"
            )
        return found

    def _state(self) -> dict[str, Any]:
        """What tells whether each tensor and each plain attribute of the module is as it was."""
        import torch

        found = {}
        for path, module in self._module.named_modules():
            start = f"{path}." if path else ""
            for name, tensor in (*module.named_parameters("", False), *module.named_buffers("", False)):
                found[f"{start}{name}"] = self._mark(tensor, 0)
            if not isinstance(module, torch.jit.ScriptModule):
                plain = {k: v for k, v in vars(module).items() if not k.startswith("_") and k != "training"}
                found |= {f"{start}{name}": self._mark(value, 0) for name, value in plain.items()}
        return found

    def _mark(self, value: Any, depth: int) -> Any:
        """A mark that differs once the value does; tensors are kept, so that no other gets their place."""
        import torch

        if isinstance(value, torch.Tensor):
            self._held.append(value)
            try:
                return "tensor", value.data_ptr(), value._version, tuple(value.shape)  # noqa: SLF001
            except RuntimeError:
                return "tensor", id(value)
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        if depth < DEPTH and isinstance(value, list | tuple | dict) and len(value) <= MOST_ITEMS:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            return type(value).__name__, [(repr(k), self._mark(v, depth + 1)) for k, v in items]
        return type(value).__qualname__


def _listed(found: list[str]) -> str:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{', '.join(found[:SHOWN])}{more}"
