"""ONNX files, with or without external data."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from repobuild.artifact import file_digest
from repobuild.errors import SourceUntrusted, from_oserror
from repobuild.graph.external import EMBED_BYTES
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.sources.interface import Trust
from repobuild.sources.model_file import copy_model, kind_mismatch
from repobuild.sources.operator_libraries import copy_libraries
from repobuild.sources.tensors_in_child import TensorsInChild
from repobuild.worker.onnx_checks import check_data, damaged, external_unusable

if TYPE_CHECKING:
    from onnx import ModelProto

MODEL = "model.onnx"
STORED = "stored"


class OnnxSource(TensorsInChild):
    """An ONNX model: a graph and tensors, without code, so that nobody needs to vouch for it.

    Args:
        recipe: The recipe that names the file.
        folder: An existing private folder for the copies.

    Raises:
        InputInvalid: The file is missing, empty, or no ONNX file, its external data cannot be used, or a
            library of operators is missing.
        EnvironmentLacking: It cannot be read or copied.
    """

    takes_custom_ops: Literal["libraries"] | None = "libraries"

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self._home = folder / "onnx"
        try:
            self._home.mkdir()
        except OSError as problem:
            raise from_oserror(problem, "copying the model file") from problem
        file = copy_model(recipe, self._home / MODEL)
        if file.content.kind != "onnx":
            raise kind_mismatch(file.given, file.content, "onnx")
        super().__init__(file.given, folder, file.path, "onnx", file.digest)
        self._file = file
        self._recipe = recipe
        self.libraries = copy_libraries(recipe, folder)
        self._data = self._copy_data()

    @property
    def kind(self) -> str:
        """``onnx``."""
        return self._kind

    def vouch(self, trust: Trust) -> None:
        """See :meth:`repobuild.sources.interface.Source.vouch`: only libraries of operators carry code."""
        self._file.check_pin()
        if self.libraries and "module" not in trust.kinds:
            raise SourceUntrusted(
                "source-untrusted",
                "custom_ops are code that would be loaded, and nobody vouched for it",
                (
                    recipe_evidence(
                        self._recipe, ("source", "custom_ops"), ", ".join(self._recipe.source.custom_ops)
                    ),
                ),
                "if you trust them, pass --trust module",
            )

    def opening(self, recipe: Recipe) -> dict[str, Any]:
        """See :meth:`repobuild.sources.tensors_in_child.TensorsInChild.opening`."""
        del recipe
        return {
            "path": str(self._model),
            "libraries": [str(one.path) for one in self.libraries],
        }

    def known_before(self) -> dict[str, Any]:
        """Digests of the external data, and of the libraries."""
        libraries = {one.name: one.digest for one in self.libraries}
        return {
            **({"external_data": self._data} if self._data else {}),
            **({"libraries": libraries} if libraries else {}),
        }

    def data_folder(self, exported: Path) -> Path:
        """Where the private copy lies."""
        del exported
        return self._home

    def _copy_data(self) -> dict[str, str]:
        """Copy the files of the external data; ``{name: sha256}``."""
        from google.protobuf.message import DecodeError

        from repobuild.graph.external import load_graph, locations, unsafe_path

        try:
            proto = load_graph(self._model)
        except DecodeError as problem:
            told = f"it has {self._model.stat().st_size} bytes and does not parse: {problem}"
            raise damaged(self._given, "it is truncated or damaged", told) from None
        digests = {}
        for name in sorted(locations(proto)):
            folder = self._recipe.source.path.parent
            source = folder / name
            trouble = unsafe_path(name)
            if not trouble and not source.resolve().is_relative_to(folder.resolve()):
                trouble = "which is a link that leads out of the model's folder"
            if not trouble and not source.is_file():
                trouble = "and there is no such file beside the model"
            if trouble:
                raise external_unusable(self._given, [f"its weights lie in '{name}', {trouble}"])
            try:
                target = self._home / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
                digests[name] = file_digest(target)
            except OSError as problem:
                raise from_oserror(problem, f"copying {name}") from problem
        if self._model.stat().st_size > EMBED_BYTES:
            self._lay_beside(proto)
        return digests

    def _lay_beside(self, proto: ModelProto) -> None:
        """Lay the weights of a large file beside it, so that nothing holds them twice from here on."""
        from repobuild.graph.external import ExternalDataUnsafe, store

        check_data(proto, self._home, self._given)
        home = self._home.with_name(STORED)
        try:
            home.mkdir()
            self._model = store(proto, self._home, home / MODEL)[0]
            shutil.rmtree(self._home)
        except ExternalDataUnsafe as problem:
            raise damaged(self._given, "a tensor is not whole", problem.lines[0]) from None
        except OSError as problem:
            raise from_oserror(problem, "copying the model file") from problem
        self._home = home
