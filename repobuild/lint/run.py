"""Runs all checks over a repository, a model or one configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from repobuild.errors import Evidence, InputInvalid
from repobuild.lint.completion import complete
from repobuild.lint.config_backend import check_backend
from repobuild.lint.config_release import check_release_fields
from repobuild.lint.config_scheduling import check_scheduling
from repobuild.lint.config_tensors import check_tensors, completes_tensors
from repobuild.lint.ensembles import Member, check_ensemble
from repobuild.lint.files import Entry, Tree
from repobuild.lint.finding import Finding, Findings
from repobuild.lint.inferred import ShapeInference
from repobuild.lint.labels import check_labels
from repobuild.lint.layout import check_layout, is_model, nested_models
from repobuild.lint.model import CONFIG_FILE, Model, View, read_model, served_versions
from repobuild.lint.onnx_checks import check_external, check_release
from repobuild.lint.onnx_file import OnnxInterface
from repobuild.lint.onnx_read import TYPES, read_onnx
from repobuild.lint.onnx_rules import check_graph
from repobuild.lint.python_model import PythonModel, check_path, read_python
from repobuild.lint.torch_model import check_torch_file, check_torch_names
from repobuild.lint.versions import check_folders, check_stray_configs, check_versions, model_file, sound_file
from repobuild.lint.warmup import check_warmup
from repobuild.releases import Release


@dataclass(frozen=True, slots=True)
class Result:
    """What lint has to say about one path.

    Attributes:
        path: The path as the user gave it.
        root: The repository that the files of findings are relative to.
        models: Names of the models that were checked.
        findings: What was found, by file and line.
        left_out: Findings beyond the number that is kept.
    """

    path: Path
    root: Path
    models: tuple[str, ...]
    findings: tuple[Finding, ...]
    left_out: int = 0


def lint(path: Path, release: Release, ignored: Iterable[str] = ()) -> Result:
    """Check a repository, the folder of one model, or one configuration.

    Nothing is imported, unpickled or run, and links out of the repository are not followed.

    Args:
        path: What to check.
        release: The Triton release to check against.
        ignored: Ids of rules to leave out.

    Raises:
        InputInvalid: The path holds no model.
    """
    root, only, config = _target(path)
    tree = Tree(root)
    folders = [e for e in tree.children(None) if e.is_folder]
    if only is None and not any(is_model(tree, f) or nested_models(tree, f) for f in folders):
        raise _nothing(path, "none of its folders has a config.pbtxt, configs or a version folder")
    with ShapeInference() as inference:
        run = _Run(tree, release, Findings(frozenset(ignored)), inference)
        names = run.model(only, config) if only else run.repository()
    if not names:
        raise _nothing(path, "it has no folder that could be a model")
    return Result(path, root, names, tuple(run.findings.sorted()), run.findings.left_out)


def _target(path: Path) -> tuple[Path, str | None, str | None]:
    """The repository, the one model and the one configuration that a path means."""
    if not path.exists():
        raise _nothing(path, "there is nothing at this path")
    if path.is_dir():
        if not is_model(Tree(path), Entry(path, path.name, ".", "folder")) or _holds_models(path):
            return path, None, None
        named = path if path.name and path.name != ".." else path.resolve()
        return named.parent, named.name, None
    if path.suffix != ".pbtxt" or not path.is_file():
        raise _nothing(path, "it is neither a folder nor a config.pbtxt")
    folder = path.resolve().parent if str(path.parent) in ("", ".", "..") else path.parent
    if path.name == CONFIG_FILE:
        return folder.parent, folder.name, CONFIG_FILE
    if folder.name == "configs":
        model = folder.parent if folder.parent.name else folder.parent.resolve()
        return model.parent, model.name, f"configs/{path.name}"
    raise _nothing(path, "it is neither a folder nor a config.pbtxt")


def _holds_models(path: Path) -> bool:
    """Whether a folder without config.pbtxt is a repository of models that have numbers for names."""
    if (path / CONFIG_FILE).exists():
        return False
    tree = Tree(path)
    return any(
        child.is_folder and any(c.name == CONFIG_FILE for c in tree.children(child))
        for child in tree.children(None)
    )


def _nothing(path: Path, why: str) -> InputInvalid:
    return InputInvalid(
        "not-a-repository",
        "the path holds no model",
        (Evidence(why, file=str(path)),),
        "name a model repository, the folder of a model, or its config.pbtxt",
    )


@dataclass(slots=True)
class _Run:
    """One run over one repository; models and graphs are read once."""

    tree: Tree
    release: Release
    findings: Findings
    inference: ShapeInference
    _models: dict[str, Model] = field(default_factory=dict)
    _graphs: dict[str, OnnxInterface | None] = field(default_factory=dict)
    _scripts: dict[str, PythonModel | None] = field(default_factory=dict)

    def repository(self) -> tuple[str, ...]:
        """Check every folder of the repository as a model."""
        self._guard(".", partial(check_layout, self.tree, None, self.findings))
        names = []
        for folder in self.tree.children(None):
            if not folder.is_folder or folder.name.startswith("."):
                continue
            nested = nested_models(self.tree, folder)
            names.append(folder.name)
            if nested:
                self.findings.add(
                    "repository-nested",
                    f"folder '{folder.name}' holds models, and is taken for one",
                    folder.relative,
                    evidence=[f"models in it: {', '.join(nested[:8])}"],
                )
            else:
                self._guard(folder.relative, partial(self._model, folder, None))
        return tuple(names)

    def model(self, name: str, config: str | None) -> tuple[str, ...]:
        """Check one model, or one of its configurations."""
        folder = self.tree.entry(name)
        if folder is None or not folder.is_folder:
            return ()
        if config is None:
            self._guard(name, partial(check_layout, self.tree, folder, self.findings))
        self._guard(name, partial(self._model, folder, config))
        return (name,)

    def _guard(self, file: str, check: partial[None]) -> None:
        """A check that fails is a finding, since one odd model must not hide what is wrong with others."""
        try:
            check()
        except Exception as problem:  # noqa: BLE001 - whatever a hostile file brings about, it is told
            self.findings.add("lint-failed", f"{type(problem).__name__}: {problem}", file)

    def _model(self, folder: Entry, only: str | None) -> None:
        model = self._read(folder)
        check_folders(model, self.findings)
        check_stray_configs(model, self.findings)
        for view in model.views:
            if only is None or view.file in (f"{folder.relative}/{only}", folder.relative):
                self._view(model, view)

    def _read(self, folder: Entry, findings: Findings | None = None) -> Model:
        if folder.name not in self._models or findings is None:
            self._models[folder.name] = read_model(self.tree, folder, findings or self.findings)
        return self._models[folder.name]

    def _view(self, model: Model, view: View) -> None:
        findings, config = self.findings, view.config
        backend = view.effective.backend
        check_backend(model, view, findings)
        completes = self._python_completes(model, view, findings)
        graph = self._newest_graph(model, view)
        member = complete(model, view, graph, python_completes=completes)
        open_tensors = completes_tensors(model, view, completes)
        check_release_fields(view, self.release, findings)
        check_tensors(model, view, findings, completes=open_tensors)
        check_scheduling(
            model, view, findings, sets_batch=not member.batch_known or (member.config.max_batch_size > 0)
        )
        if backend == "ensemble" or config.HasField("ensemble_scheduling"):
            check_ensemble(model, view, self._members(), findings)
        if not backend:
            return
        check_versions(model, view, findings)
        check_labels(model, view, findings)
        inputs = {i.name: i for i in member.config.input} if member.inputs_known else {}
        check_warmup(model, view, inputs, findings, batch_known=member.batch_known)
        if backend == "python":
            check_path(model, view, findings)
        if backend == "onnxruntime":
            self._onnx(model, view)
        elif backend == "pytorch":
            check_torch_names(view, findings)
            for entry in self._served_files(model, view):
                if sound_file(entry, findings):
                    check_torch_file(entry, findings)
        elif backend == "python" and not completes and not config.input and not config.output:
            findings.add("python-tensors-missing", "no inputs and outputs are named", *view.where())

    def _served_files(self, model: Model, view: View) -> list[Entry]:
        """Model files of the served versions, highest first."""
        found = [model_file(model, view, n) for n in served_versions(model, view.config)]
        return [entry for entry in found if entry is not None and entry.is_file]

    def _python_completes(self, model: Model, view: View, findings: Findings) -> bool:
        if view.effective.backend != "python":
            return False
        completes = True
        for entry in reversed(self._served_files(model, view)):
            if not sound_file(entry, findings):
                continue
            if entry.relative not in self._scripts:
                self._scripts[entry.relative] = read_python(entry, self.release, findings)
            script = self._scripts[entry.relative]
            completes = script is None or script.completes
        return completes

    def _graph(self, entry: Entry, findings: Findings) -> OnnxInterface | None:
        if entry.relative not in self._graphs:
            sound = sound_file(entry, findings)
            self._graphs[entry.relative] = read_onnx(entry, findings, self.inference) if sound else None
        return self._graphs[entry.relative]

    def _newest_graph(self, model: Model, view: View) -> OnnxInterface | None:
        if view.effective.backend != "onnxruntime":
            return None
        files = self._served_files(model, view)
        return self._graph(files[0], self.findings) if files else None

    def _onnx(self, model: Model, view: View) -> None:
        served = served_versions(model, view.config)
        newest = self._newest_graph(model, view)
        for number in sorted(model.versions, reverse=True):
            entry = model_file(model, view, number)
            if entry is None or not entry.is_file:
                continue
            scratch = Findings()
            graph = self._graph(entry, self.findings if number in served else scratch)
            if graph is None:
                if number not in served and scratch.sorted():
                    self.findings.add(
                        "version-empty",
                        f"version {number} is not served now, and its model file is damaged",
                        entry.relative,
                        evidence=[f.message for f in scratch.sorted()[:1]],
                    )
                continue
            if number in served:
                check_release(entry, graph, view, self.release, self.findings)
                check_external(model, entry, graph, self.findings)
                check_graph(view, graph, entry, self.findings)
            if newest is not None and graph is not newest and _interface(graph) != _interface(newest):
                self.findings.add(
                    "versions-differ",
                    f"version {number} has other inputs or outputs than version {served[0]}",
                    entry.relative,
                    evidence=_differences(graph, newest),
                )

    def _members(self) -> dict[str, partial[Member | None]]:
        return {e.name: partial(self._member, e) for e in self.tree.children(None) if e.is_folder}

    def _member(self, folder: Entry) -> Member | None:
        scratch = Findings()
        model = self._models.get(folder.name) or read_model(self.tree, folder, scratch)
        view = model.main
        if view is None or not view.effective.backend:
            return None
        graph = None
        if view.effective.backend == "onnxruntime":
            files = self._served_files(model, view)
            graph = self._graphs.get(files[0].relative) if files else None
            if graph is None and files and files[0].relative not in self._graphs:
                graph = (
                    read_onnx(files[0], scratch, self.inference) if sound_file(files[0], scratch) else None
                )
        completes = self._python_completes(model, view, scratch)
        return complete(model, view, graph, python_completes=completes)


def _interface(graph: OnnxInterface) -> dict[str, tuple[object, ...]]:
    sides = (("input", graph.inputs), ("output", graph.outputs))
    return {f"{side} '{t.name}'": (t.elem, t.shape) for side, tensors in sides for t in tensors}


def _differences(one: OnnxInterface, other: OnnxInterface) -> list[str]:
    left, right = _interface(one), _interface(other)
    names = sorted(n for n in left.keys() | right.keys() if left.get(n) != right.get(n))
    return [f"{n}: {_described(left.get(n))}, and {_described(right.get(n))}" for n in names[:8]]


def _described(tensor: tuple[object, ...] | None) -> str:
    return "absent" if tensor is None else f"{TYPES.get(tensor[0], tensor[0])} {tensor[1]}"  # type: ignore[call-overload]
