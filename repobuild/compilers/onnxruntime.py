"""The ``onnxruntime`` target: the graph itself, proven to load."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType

from repobuild.artifact import Artifact, Library, Tool, file_digest
from repobuild.compilers.interface import Availability, Available, Form, Unavailable
from repobuild.errors import EnvironmentLacking, from_oserror
from repobuild.graph.external import load_graph, locations
from repobuild.runners.onnxruntime import OnnxRuntimeRunner
from repobuild.tensors import Signature

ORT_HINT = "pip install 'repobuild[cpu]', or 'repobuild[gpu]' on a machine with an NVIDIA GPU (never both)"


class OnnxRuntimeCompiler:
    """Copies the graph into place after ONNX Runtime has loaded it."""

    form: Form = "onnx"
    backend = "onnxruntime"
    filename = "model.onnx"
    parameters: Mapping[str, str] = MappingProxyType({"intra_op_thread_count": "1"})
    """One thread in an operator: several instances then share the cores, and sums come out in one order."""
    options = ("precision",)

    def available(self) -> Availability:
        """Whether one of ONNX Runtime's packages is installed."""
        for package in ("onnxruntime", "onnxruntime-gpu"):
            try:
                return Available(version(package))
            except PackageNotFoundError:
                continue
        return Unavailable("ONNX Runtime is not installed", ORT_HINT)

    def compile(
        self, graph: Path, signature: Signature, to: Path, libraries: Sequence[Library] = ()
    ) -> Artifact:
        """See :meth:`repobuild.compilers.interface.Compiler.compile`."""
        here = self.available()
        if isinstance(here, Unavailable):
            raise EnvironmentLacking("onnxruntime-missing", here.reason, (), here.hint)
        with OnnxRuntimeRunner(graph, libraries):
            pass
        beside = []
        try:
            shutil.copyfile(graph, to)
            for name in sorted(locations(load_graph(graph))):
                beside.append(to.parent / name)
                shutil.copyfile(graph.parent / name, beside[-1])
        except OSError as problem:
            raise from_oserror(problem, "writing the model") from problem
        made_by = Tool("onnxruntime", here.version)
        return Artifact(
            "onnxruntime", to, signature, file_digest(to), made_by, tuple(beside), tuple(libraries)
        )
