"""Files that are recognised and not converted yet; those that carry pickles are scanned all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from repobuild.errors import ConversionFailed, Evidence
from repobuild.recipe.tensorflow import commands, tensorflow_refused
from repobuild.recipe.types import Recipe
from repobuild.sources.archive_scan import ArchiveScan, scan_archive
from repobuild.sources.in_child import ChildSource
from repobuild.sources.interface import Trust
from repobuild.sources.model_file import ModelFile, copy_model
from repobuild.sources.untrusted import unsafe_lines, untrusted

SCANNED = frozenset({"torch", "torchscript", "pt2", "torch-archive", "npz", "npy", "zip", "keras"})


class UnsupportedSource(ChildSource):
    """A model of a kind that no source reads yet.

    Args:
        recipe: The recipe that names the file.
        folder: An existing private folder for the copy.

    Raises:
        InputInvalid: The file is missing or empty.
        EnvironmentLacking: It cannot be read or copied.
    """

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        file = copy_model(recipe, folder / "model.file")
        super().__init__(file.given, folder, file.path, file.content.kind, file.digest)
        self._file = file
        self._scan = scan_archive(file.path) if file.content.kind in SCANNED else ArchiveScan({}, ())

    takes: Literal["rows"] = "rows"
    takes_custom_ops: Literal["modules"] | None = "modules"

    @property
    def kind(self) -> str:
        """What the file is, a key of :data:`repobuild.sources.content.KINDS`."""
        return self._kind

    def vouch(self, trust: Trust) -> None:
        """Refuse the file: as untrusted where it would run code, and else as not converted yet.

        Raises:
            SourceUntrusted: It holds pickles that import more than tensors need, and nobody vouches for it,
                or the pin names another file.
            ConversionFailed: It is of a kind that is not converted.
        """
        self._file.check_pin()
        if self._file.pin is None and "pickle" not in trust.kinds:
            lines = unsafe_lines(self._scan)
            if lines:
                what = f"is {self._file.content.what} with pickles inside: loading it runs what they name"
                raise untrusted(self._file, what, lines)
        if commands(self._kind, self._given) is not None:
            raise tensorflow_refused(self._kind, self._file.content.what, self._given)
        raise ConversionFailed(
            "source-unsupported",
            f"{self._given} is {self._file.content.what}, which is not converted yet",
            tuple(Evidence(line, file=self._given) for line in _facts(self._file, self._scan)),
            "models of scikit-learn are read from joblib, pickle, cloudpickle and skops files",
        )


def _facts(file: ModelFile, scan: ArchiveScan) -> tuple[str, ...]:
    return tuple(t for t in (file.content.trouble, *scan.troubles[:24]) if t)
