"""Every case."""

from __future__ import annotations

from oracle.corpus import binary_infer, json_infer, programs, routes
from oracle.corpus.case import Case


def all_cases() -> dict[str, Case]:
    """By name.

    Raises:
        ValueError: Two have the same name.
    """
    found: dict[str, Case] = {}
    for module in (routes, json_infer, binary_infer, programs):
        for case in module.cases():
            if case.name in found:
                raise ValueError(f"two cases are called {case.name}")
            found[case.name] = case
    return found
