"""Makes the module of an exported program such that a trace of it keeps free axes free."""

from __future__ import annotations

from typing import Any


def traceable(program: Any) -> Any:
    """A module of the program whose sizes are asked of tensors, where a trace sees them.

    ``torch.ops.aten.sym_size`` gives a plain number, which a trace would keep, and the operators of
    ``torch.ops.aten`` refuse the numbers that a trace can follow; those of ``torch`` and ``Tensor`` take
    them.

    Args:
        program: An ``ExportedProgram``; it is not changed.
    """
    import torch

    module = program.module()
    for node in list(module.graph.nodes):
        if node.op == "call_module" and not node.users and str(node.target).startswith("_guards"):
            module.graph.erase_node(node)
        elif node.op == "call_function" and node.target is torch.ops.aten.sym_size.int:
            node.op, node.target = "call_method", "size"
        elif node.op == "call_function" and _has_sizes(node):
            node.target = _plain(node.target)
    module.recompile()
    return module


def _has_sizes(node: Any) -> bool:
    """Whether a node takes numbers that other nodes compute."""
    import torch

    return any(isinstance(n.meta.get("val"), torch.SymInt | torch.SymFloat) for n in node.all_input_nodes)


def _plain(target: Any) -> Any:
    """The function of ``torch`` or ``Tensor`` that an operator of ATen stands behind, where there is one."""
    import torch

    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":  # noqa: SLF001
        return target
    name = target._opname  # noqa: SLF001 - PyTorch has no public name for it
    return getattr(torch, name, None) or getattr(torch.Tensor, name, None) or target
