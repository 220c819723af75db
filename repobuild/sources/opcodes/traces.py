"""What a pickle tells about how it was made: versions of packages, and code that it carries itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from repobuild.sources.opcodes.machine import Found, Global, Object

VERSION_KEYS: Mapping[str, str] = {"_sklearn_version": "scikit-learn"}
"""Keys of object states that hold a version, and its package. ``sklearn.base.BaseEstimator.__getstate__``
adds ``_sklearn_version`` to the state of every estimator of scikit-learn itself."""

VERSION = re.compile(r"\d[0-9A-Za-z.+!-]{0,39}")

MODULE_HINTS: tuple[tuple[str, str, str], ...] = (
    ("numpy._core.", "numpy", ">=2"),
    ("numpy.core.", "numpy", "<2"),
    ("pandas.core.indexes.numeric.", "pandas", "<2"),
)
"""Beginnings of imported names that only some versions of a package write. NumPy 2.0 renamed ``numpy.core``
to ``numpy._core``; pandas 2.0 removed ``Int64Index`` and its module."""

BLOB_STARTS = (b"{L", b'{"')
LONGEST_BLOB = 1 << 15
XGBOOST_VERSION = re.compile(
    rb'version\[#L\x00{7}\x03i([\x00-\x7f])i([\x00-\x7f])i([\x00-\x7f])|"version":\[(\d{1,3}),(\d{1,3}),(\d{1,3})\]'
)
"""XGBoost keeps its version as three integers in the booster's state, in UBJSON or JSON
(src/common/version.cc, json.cc); the state begins with its configuration, so it stands near the beginning."""

CODE_ARGUMENTS: Mapping[int, str] = {15: "<3.8", 16: ">=3.8,<3.11", 18: ">=3.11"}
"""Arguments of ``types.CodeType`` by version of Python: 3.8 added one and 3.11 two more."""

RESUME: Mapping[int, str] = {0x97: ">=3.11,<3.13", 0x95: ">=3.13,<3.14", 0x80: ">=3.14,<3.15"}
"""The opcode that functions begin with, by version of Python (``Include/opcode_ids.h``, ``opcode.h``)."""

CODE_BYTES = 6
SKELETONS = ("_make_skeleton_class", "_make_skeleton_enum")
IMPORTERS = ("subimport",)


def note_import(found: Found, name: str) -> None:
    """Read from a name that is imported what it tells of a package's version."""
    for start, package, versions in MODULE_HINTS:
        if name.startswith(start):
            found.versions.setdefault(package, set()).add(versions)


def note_entry(found: Found, key: str, value: Any) -> None:
    """Read an entry of an object's state."""
    package = VERSION_KEYS.get(key)
    if package and isinstance(value, str) and VERSION.fullmatch(value):
        found.versions.setdefault(package, set()).add(value)


def note_blob(found: Found, start: bytes) -> None:
    """Read from the beginning of a byte string whether it is a booster of XGBoost, and of which version."""
    match = XGBOOST_VERSION.search(start) if b"learner" in start else None
    if match:
        parts = [str(part[0]) for part in match.groups()[:3] if part] or [
            part.decode() for part in match.groups()[3:] if part
        ]
        found.versions.setdefault("xgboost", set()).add(".".join(parts))


def note_call(found: Found, target: Any, arguments: Any) -> None:
    """Read from a call what code or classes the pickle carries by value, as cloudpickle writes them."""
    if not isinstance(arguments, tuple):
        return
    if _is_code_type(target):
        _note_code(found, arguments)
    elif isinstance(target, Global) and target.module.partition(".")[0] == "cloudpickle":
        if target.name in SKELETONS and len(arguments) > 1 and isinstance(arguments[1], str):
            found.code.add(f"class {arguments[1]}")
        elif target.name in IMPORTERS and arguments and isinstance(arguments[0], str):
            found.imports.add(arguments[0])


def _is_code_type(target: Any) -> bool:
    """``types.CodeType``, or what cloudpickle's ``_builtin_type("CodeType")`` gives."""
    if isinstance(target, Global):
        return target.name == "CodeType"
    made_by = target.made_by if isinstance(target, Object) else None
    return (
        isinstance(made_by, Global) and made_by.name == "_builtin_type" and target.arguments == ("CodeType",)
    )


def _note_code(found: Found, arguments: tuple[Any, ...]) -> None:
    count = len(arguments)
    versions = CODE_ARGUMENTS.get(count)
    if versions is None:
        found.code.add("a function")
        return
    name = arguments[11] if count > 15 else arguments[10]
    qualified = arguments[12] if count > 16 else name
    shown = next((n for n in (qualified, name) if isinstance(n, str)), None)
    found.code.add("a function" if shown is None else f"function {shown}")
    start = arguments[CODE_BYTES if count > 15 else CODE_BYTES - 1]
    if count == 18 and isinstance(start, bytes):
        versions = RESUME.get(start[0], versions)
    found.versions.setdefault("python", set()).add(versions)
