"""Finds classes of PyTorch modules in Python files, by reading them: nothing is imported."""

from __future__ import annotations

import ast
from pathlib import Path

MOST_FILES = 32
LARGEST_FILE = 1 << 20


def module_classes(folder: Path) -> list[tuple[str, str]]:
    """``(file, class)`` of each class in a folder's Python files that names ``Module`` as a base.

    Files that cannot be read as Python are passed over: this only serves a guess.

    Args:
        folder: The folder; those below it are not looked at.
    """
    found: list[tuple[str, str]] = []
    for file in sorted(folder.glob("*.py"))[:MOST_FILES]:
        try:
            if file.stat().st_size > LARGEST_FILE:
                continue
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        found.extend(
            (file.name, node.name)
            for node in tree.body
            if isinstance(node, ast.ClassDef) and _is_module(node)
        )
    return found


def _is_module(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rpartition(".")[2] in ("Module", "LightningModule") for base in node.bases)
