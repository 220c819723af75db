"""How Triton's PyTorch backend reads a tensor's position out of its name in a configuration."""

from __future__ import annotations


def position(name: str) -> int | None:
    """The index in ``<name>__<index>``, ``None`` for a name that has another form.

    The index is all that stands behind the first ``__``: of ``a__b__0`` it would be ``b__0``, so that the
    name has none, and of ``a__`` it is nothing, which counts as 0 (pytorch_backend, GetNamingConvention, the
    same on branches r24.01 to r26.05).
    """
    _, mark, index = name.partition("__")
    if not mark or not (index == "" or (index.isascii() and index.isdigit())):
        return None
    return int(index or "0")
