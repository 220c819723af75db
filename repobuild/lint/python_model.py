"""model.py of the python backend, read as text and never run."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from dataclasses import dataclass

from repobuild.lint.files import Entry, read_whole
from repobuild.lint.finding import Findings
from repobuild.lint.model import Model, View
from repobuild.releases import Release

LARGEST_SOURCE = 4 << 20
CLASS = "TritonPythonModel"
_CALLS = (
    ("initialize", "self and args", 2),
    ("execute", "self and requests", 2),
    ("finalize", "self alone", 1),
)
"""Methods that the backend calls, with what it hands over (pb_stub.cc)."""
_SHELL = re.compile(r"""[\s;&|()<>$`"'\\]""")
"""Characters that end or change a word of bash."""


@dataclass(frozen=True, slots=True)
class PythonModel:
    """What a model.py says.

    Attributes:
        completes: Whether it has ``auto_complete_config``, or may have it from a base class.
    """

    completes: bool


def check_path(model: Model, view: View, findings: Findings) -> None:
    """Check the names that the backend puts into a command line of bash as they are (stub_launcher.cc)."""
    name = view.effective.filename
    for odd, place in (
        (model.name, (model.folder.relative, None, None)),
        (name, view.where("default_model_filename")),
    ):
        if _SHELL.search(odd):
            findings.add("python-path-shell", f"the stub for '{odd}' never starts", *place)


def read_python(entry: Entry, release: Release, findings: Findings) -> PythonModel | None:
    """Read a model.py; ``None`` when nothing can be said about it."""
    source = read_whole(entry, LARGEST_SOURCE)
    if source is None:
        findings.add("not-checked", f"{entry.name} is larger than lint reads, or unreadable", entry.relative)
        return None
    tree = _parsed(source, entry, release, findings)
    if tree is None:
        return None
    bound = _bound(tree)
    if bound is None:
        # A star import, or the name comes from elsewhere.
        return PythonModel(completes=True)
    if isinstance(bound, str):
        findings.add("python-class-missing", f"{entry.name} has no class {CLASS}", entry.relative, 1)
        return None
    return _check_class(bound, entry, findings)


def _parsed(source: bytes, entry: Entry, release: Release, findings: Findings) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source, entry.name)
    except SyntaxError as problem:
        ours = sys.version_info[:2]
        theirs = tuple(int(part) for part in (release.python or "0.0").split("."))
        rule = "python-syntax" if ours >= theirs else "python-syntax-unsure"
        said = f"{problem.msg} (read with Python {ours[0]}.{ours[1]})"
        findings.add(rule, said, entry.relative, problem.lineno or 1, problem.offset)
    except (ValueError, RecursionError, MemoryError) as problem:
        findings.add("python-syntax", f"{type(problem).__name__}: {problem}", entry.relative, 1)
    return None


def _bound(tree: ast.Module) -> ast.ClassDef | str | None:
    """The class; ``None`` if the name is bound in some other way; ``"missing"``."""
    found: ast.ClassDef | str | None = "missing"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == CLASS:
            return node
        if isinstance(node, ast.ImportFrom):
            if any(a.name == "*" or (a.asname or a.name) == CLASS for a in node.names):
                found = None
        elif isinstance(node, ast.Name) and node.id == CLASS and isinstance(node.ctx, ast.Store):
            found = None
    return found


def _check_class(node: ast.ClassDef, entry: Entry, findings: Findings) -> PythonModel:
    inherits = any(not (isinstance(b, ast.Name) and b.id == "object") for b in node.bases) or bool(
        node.keywords or node.decorator_list
    )
    methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)}
    assigned = {
        t.id for s in node.body if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)
    }
    execute = methods.get("execute")
    conditional = any(isinstance(s, ast.If | ast.Try | ast.With) for s in node.body)
    if execute is None and "execute" not in assigned and not inherits and not conditional:
        findings.add("python-execute-missing", f"{CLASS} has no execute", entry.relative, node.lineno)
    for name, takes, count in _CALLS:
        method = methods.get(name)
        if method is not None and not method.decorator_list and not _callable_with(method.args, count):
            said = f"{name} does not take {takes}"
            findings.add(f"python-{name}-arguments", said, entry.relative, method.lineno)
    return PythonModel(completes=inherits or conditional or "auto_complete_config" in {*methods, *assigned})


def _callable_with(arguments: ast.arguments, count: int) -> bool:
    """Whether a method can be called with so many positional arguments, itself among them."""
    positional = [*arguments.posonlyargs, *arguments.args]
    needed = len(positional) - len(arguments.defaults)
    more = [d for d in arguments.kw_defaults if d is None]
    return needed <= count and (len(positional) >= count or arguments.vararg is not None) and not more
