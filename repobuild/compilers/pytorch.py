"""The ``pytorch`` target: TorchScript for Triton's PyTorch backend."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType

from repobuild.artifact import Artifact, Library, Tool, file_digest
from repobuild.compilers.interface import Availability, Available, Form, Unavailable
from repobuild.errors import EnvironmentLacking, from_oserror
from repobuild.tensors import Signature

TORCH_HINT = "pip install 'repobuild[torch]'"


class PyTorchCompiler:
    """Puts TorchScript into place; that it loads by itself is for its runner to show, in a child process."""

    form: Form = "torchscript"
    backend = "pytorch"
    filename = "model.pt"
    parameters: Mapping[str, str] = MappingProxyType({})
    """None: the backend's thread counts hold for all models of a server, which no recipe knows."""

    def available(self) -> Availability:
        """Whether PyTorch is installed."""
        try:
            return Available(version("torch"))
        except PackageNotFoundError:
            return Unavailable("PyTorch is not installed", TORCH_HINT)

    def compile(
        self, graph: Path, signature: Signature, to: Path, libraries: Sequence[Library] = ()
    ) -> Artifact:
        """See :meth:`repobuild.compilers.interface.Compiler.compile`."""
        assert not libraries, "only ONNX files have libraries of operators"
        here = self.available()
        if isinstance(here, Unavailable):
            raise EnvironmentLacking("torch-missing", here.reason, (), here.hint)
        try:
            shutil.copyfile(graph, to)
            return Artifact("pytorch", to, signature, file_digest(to), Tool("torch", here.version))
        except OSError as problem:
            raise from_oserror(problem, "writing the model") from problem
