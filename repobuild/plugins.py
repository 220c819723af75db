"""The tables in which sources, compilers and runners are found by name.

Built-in names are rows of this file; others come from entry points of the groups ``repobuild.sources``,
``repobuild.compilers`` and ``repobuild.runners``. A name has exactly one owner, and a built-in name cannot be
taken over.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from repobuild.errors import EnvironmentLacking, Evidence


@dataclass(frozen=True, slots=True)
class Registry:
    """Names and where their class lies.

    Attributes:
        group: Entry-point group that plug-ins use.
        builtin: ``{name: "module:attribute"}``.
        aliases: Further names for built-in ones.
    """

    group: str
    builtin: Mapping[str, str]
    aliases: Mapping[str, str]

    def names(self) -> tuple[str, ...]:
        """All names, built-in ones first, aliases left out."""
        return (*self.builtin, *sorted(self._plugins().keys() - self.builtin.keys()))

    def find(self, name: str) -> str | None:
        """The proper name behind a name or alias, ``None`` when nobody owns it."""
        name = self.aliases.get(name, name)
        return name if name in self.builtin or name in self._plugins() else None

    def load(self, name: str) -> Any:
        """Import and return what a name stands for.

        Raises:
            KeyError: Nobody owns the name; ask :meth:`find` first.
            EnvironmentLacking: A plug-in does not import.
        """
        proper = self.aliases.get(name, name)
        where = self.builtin.get(proper) or self._plugins()[proper]
        module, _, attribute = where.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as problem:
            if proper in self.builtin:
                raise
            raise EnvironmentLacking(
                "plugin-broken",
                f"the plug-in '{name}' of group {self.group} does not import",
                (Evidence(f"{where}: {problem}"),),
                "upgrade or uninstall the package that provides it",
            ) from problem

    def _plugins(self) -> dict[str, str]:
        return {point.name: point.value for point in entry_points(group=self.group)}


SOURCES = Registry(
    "repobuild.sources",
    {
        "joblib": "repobuild.sources.pickled:PickledSource",
        "pickle": "repobuild.sources.pickled:PickledSource",
        "cloudpickle": "repobuild.sources.pickled:PickledSource",
        "skops": "repobuild.sources.skops_file:SkopsSource",
        "torch": "repobuild.sources.torch_files:ModuleSource",
        "torch-factory": "repobuild.sources.torch_files:FactorySource",
        "torchscript": "repobuild.sources.torch_files:ScriptSource",
        "pt2": "repobuild.sources.torch_files:ProgramSource",
        "onnx": "repobuild.sources.onnx_file:OnnxSource",
    },
    {"sklearn": "joblib"},
)
KNOWN_SOURCES = frozenset({"xgboost", "lightgbm", "catboost"})
"""Kinds that recipes may name and files are recognised as, though no source reads them yet."""

COMPILERS = Registry(
    "repobuild.compilers",
    {
        "onnxruntime": "repobuild.compilers.onnxruntime:OnnxRuntimeCompiler",
        "pytorch": "repobuild.compilers.pytorch:PyTorchCompiler",
    },
    {},
)
RUNNERS = Registry(
    "repobuild.runners",
    {
        "onnxruntime": "repobuild.runners.onnxruntime:OnnxRuntimeRunner",
        "pytorch": "repobuild.runners.pytorch:PyTorchRunner",
    },
    {},
)
