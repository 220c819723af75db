"""What a compiler does: one file and one row of ``plugins.COMPILERS`` add a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from repobuild.artifact import Artifact, Library
from repobuild.tensors import Signature


@dataclass(frozen=True, slots=True)
class Available:
    """The compiler can run here; ``version`` is its own."""

    version: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The compiler cannot run here: why, and what would mend it."""

    reason: str
    hint: str


Availability: TypeAlias = Available | Unavailable
Form: TypeAlias = Literal["onnx", "torchscript"]
"""What a model is brought into before it is compiled; each is made and compared with the model by itself."""


class Compiler(Protocol):
    """Makes an artifact for one kind of hardware."""

    form: Form
    """What it compiles."""

    backend: str
    """Triton's backend that loads the artifact."""

    filename: str
    """The file name under which Triton looks for the artifact in a version folder."""

    parameters: Mapping[str, str]
    """Parameters that config.pbtxt gets where the recipe does not set them."""

    def available(self) -> Availability:
        """Whether it can run on this machine."""

    def compile(
        self, graph: Path, signature: Signature, to: Path, libraries: Sequence[Library] = ()
    ) -> Artifact:
        """Compile a model that is in the compiler's form.

        Args:
            graph: The ONNX file in normal form, or the TorchScript file.
            signature: Its tensors.
            to: File to write.
            libraries: What the graph takes its custom operators from.

        Raises:
            ConversionFailed: The graph cannot be compiled; the node and operator are named.
            EnvironmentLacking: The compiler is not available here.
        """
