"""PyTorch models: a module with its weights, TorchScript archives, exported programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repobuild.artifact import file_digest
from repobuild.errors import Evidence, InputInvalid, SourceUntrusted
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.sources.archive_scan import ArchiveScan, scan_archive
from repobuild.sources.interface import Trust
from repobuild.sources.model_file import ModelFile, copy_model, kind_mismatch
from repobuild.sources.tensors_in_child import TensorsInChild
from repobuild.sources.untrusted import unsafe_lines, untrusted

PYTHON = ".py"
WEIGHTS = ("torch", "safetensors")


class _TorchSource(TensorsInChild):
    """What the three have in common: a scan of the pickles inside.

    Args:
        recipe: The recipe that names the file.
        folder: An existing private folder for the copy.

    Raises:
        InputInvalid: The file is missing, empty, or something else.
        EnvironmentLacking: It cannot be read or copied.
    """

    kinds: Sequence[str]
    code = "torchscript"

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        file = copy_model(recipe, folder / "model.torch")
        if file.content.kind not in self.kinds:
            raise kind_mismatch(file.given, file.content, self.kinds[0])
        super().__init__(file.given, folder, file.path, self.kinds[0], file.digest)
        self._file = file
        self._recipe = recipe
        zipped = file.content.kind != "safetensors"
        self._scan = scan_archive(file.path) if zipped else ArchiveScan({}, ())

    @property
    def kind(self) -> str:
        """``torch``, ``torchscript`` or ``pt2``."""
        return self._kind

    def _refuse_pickles(self, trust: Trust) -> None:
        """Refuse pickles that import more than tensors need, unless pin or trust vouch for them.

        Raises:
            SourceUntrusted: Nobody vouches for them, or the pin names another file.
            InputInvalid: The archive lies about itself, or could not be looked into.
        """
        self._file.check_pin()
        if self._file.pin is not None or "pickle" in trust.kinds:
            return
        lines = unsafe_lines(self._scan)
        if lines:
            what = f"is {self._file.content.what} with pickles inside: loading it runs what they name"
            raise untrusted(self._file, what, lines)
        self._refuse_lies()

    def _refuse_lies(self) -> None:
        """Refuse an archive that two readers would read differently, or that could not be looked into."""
        if self._scan.troubles:
            raise InputInvalid(
                "archive-unsafe",
                f"{self._given} is an archive that is not opened: it is damaged, or made to do harm",
                tuple(Evidence(trouble, file=self._given) for trouble in self._scan.troubles[:24]),
                "save the model again; a pin (sha256) in the recipe vouches for this very file",
            )


class ModuleSource(_TorchSource):
    """A module's weights (``torch.save``, safetensors) and the Python code of its class.

    Args and errors are those of :class:`_TorchSource`.
    """

    kinds = WEIGHTS

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        super().__init__(recipe, folder)
        self._whole = recipe.source.module is None

    def vouch(self, trust: Trust) -> None:
        """See :meth:`repobuild.sources.interface.Source.vouch`: ``--trust module`` for the class."""
        self._refuse_pickles(trust)
        if self._whole:
            if not unsafe_lines(self._scan):
                raise InputInvalid(
                    "module-needed",
                    f"{self._given} holds weights without the module that they belong to",
                    (recipe_evidence(self._recipe, ("source", "module"), "is missing"),),
                    "name the module's class: source: {module: {file: net.py, class: Net}}",
                )
            return
        vouch_for_module(self._recipe, trust)

    def opening(self, recipe: Recipe) -> dict[str, Any]:
        """See :meth:`repobuild.sources.tensors_in_child.TensorsInChild.opening`."""
        module = module_of(recipe) if recipe.source.module else {}
        return {"path": str(self._model), "module": module, "whole": self._whole}

    def known_before(self) -> dict[str, Any]:
        """The module's class, and the digest of its file."""
        return module_facts(self._recipe)


class FactorySource(TensorsInChild):
    """A Python file with a function that makes a whole module, weights included.

    Args:
        recipe: The recipe; ``source.path`` is the file and ``source.module.class`` the function.
        folder: An existing private folder.

    Raises:
        InputInvalid: The file is missing.
        EnvironmentLacking: It cannot be read.
    """

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        file: ModelFile = copy_model(recipe, folder / "factory.py")
        super().__init__(file.given, folder, file.path, "torch", file.digest)
        self._file = file
        self._recipe = recipe

    @property
    def kind(self) -> str:
        """``torch``."""
        return self._kind

    def vouch(self, trust: Trust) -> None:
        """See :meth:`repobuild.sources.interface.Source.vouch`: ``--trust module`` or a pin."""
        self._file.check_pin()
        if self._file.pin is None:
            vouch_for_module(self._recipe, trust)

    def opening(self, recipe: Recipe) -> dict[str, Any]:
        """See :meth:`repobuild.sources.tensors_in_child.TensorsInChild.opening`."""
        module = dict(recipe.source.module or {})
        if "class" not in module:
            raise InputInvalid(
                "module-needed",
                f"{self._given} is a Python file, and nothing says what in it makes the model",
                (recipe_evidence(recipe, ("source", "module"), "is missing"),),
                "name the function: source: {module: {class: make_model}}",
            )
        return {"path": None, "module": {**module, "file": str(recipe.source.path)}}


class ScriptSource(_TorchSource):
    """A TorchScript archive: code in PyTorch's own language, which can read and write files.

    Args and errors are those of :class:`_TorchSource`.
    """

    kinds = ("torchscript",)

    def vouch(self, trust: Trust) -> None:
        """See :meth:`repobuild.sources.interface.Source.vouch`: ``--trust torchscript`` or a pin."""
        self._file.check_pin()
        if self._file.pin is not None:
            return
        if "torchscript" not in trust.kinds:
            lines = ["its code may read and write files when the model is run", *unsafe_lines(self._scan)]
            raise SourceUntrusted(
                "source-untrusted",
                f"{self._given} is a TorchScript archive, which carries code, and nobody vouched for it",
                tuple(Evidence(line, file=self._given) for line in lines),
                "if you made the file, pass --trust torchscript, or pin it in the recipe:"
                f" sha256: {self.digest}",
            )
        self._refuse_lies()  # PyTorch reads the pickles in it without Python, so that they import nothing


class ProgramSource(_TorchSource):
    """An exported program (``.pt2``): a graph of PyTorch's operators and tensors, without code of its own.

    Args and errors are those of :class:`_TorchSource`.
    """

    kinds = ("pt2",)

    def vouch(self, trust: Trust) -> None:
        """See :meth:`repobuild.sources.interface.Source.vouch`: pickles of other than tensors."""
        self._refuse_pickles(trust)


def vouch_for_module(recipe: Recipe, trust: Trust) -> None:
    """Make sure that the user vouches for the Python code of the module.

    Raises:
        SourceUntrusted: Nobody does.
    """
    if "module" in trust.kinds:
        return
    module = recipe.source.module or {}
    where = module.get("file") or module.get("name") or recipe.source.given
    raise SourceUntrusted(
        "source-untrusted",
        f"{where} is Python code that would be imported, and nobody vouched for it",
        (recipe_evidence(recipe, ("source", "module"), f"{where}: {module.get('class', '')}"),),
        "if you trust the file, pass --trust module",
    )


def module_of(recipe: Recipe) -> dict[str, Any]:
    """The recipe's ``module:`` with an absolute path.

    Raises:
        InputInvalid: There is no such file.
    """
    module = dict(recipe.source.module or {})
    if module.get("file"):
        path = recipe.folder / module["file"]
        if not path.is_file():
            raise InputInvalid(
                "module-file-missing",
                f"there is no Python file {module['file']}",
                (recipe_evidence(recipe, ("source", "module", "file"), "no such file"),),
                "the path is relative to the recipe",
            )
        module["file"] = str(path)
    return module


def module_facts(recipe: Recipe) -> dict[str, Any]:
    """What the report says of the code."""
    module = recipe.source.module
    if module is None:
        return {}
    facts = {"class": module["class"]}
    if module.get("file"):
        path = recipe.folder / module["file"]
        facts |= {"file": str(module["file"]), "sha256": file_digest(path) if path.is_file() else ""}
    else:
        facts["module"] = module.get("name")
    return {"module": facts}
