"""The seam between the server and what runs a model.

A backend is found by the ``backend`` name of config.pbtxt: the built-in table of
``repobuild_serve.backends.table`` first, then the entry-point group ``repobuild_serve.backends``, whose
entries are callables without arguments that return a ``Backend``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from repobuild_serve.config.settings import ModelSettings

if TYPE_CHECKING:
    import numpy as np


class Instance(Protocol):
    """One copy of a model, used by one thread at a time."""

    def run(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        """Run one batch.

        Args:
            inputs: Array by input name. Shape ``[batch, *model_dims]``, or ``model_dims`` when the model does
                not batch; BYTES are object arrays of ``bytes``. Arrays may be read-only. An input that the
                config calls optional may be missing: ``Backend.open`` must refuse such a config if the model
                cannot do without.

        Returns:
            One array per configured output, in config order; BYTES as object arrays of ``bytes`` or ``str``.

        Raises:
            RequestError: The batch cannot be run and the text is meant for the client.
            Exception: Anything else is logged and told as a failure of the batch.
        """
        ...

    def close(self) -> None:
        """Release what the instance holds; ``run`` is not called again."""
        ...


class Backend(Protocol):
    """How models of one kind are completed, checked and loaded.

    A backend may have two further methods: ``configure(own, shared)`` if it has settings of its own, and
    ``uses_gpus()`` if it can run on a GPU (see ``ModelBackend``). It may have two further attributes:
    ``text_only``, true if it takes strings as text only, so that one that is not UTF-8 is refused before it
    is in a batch; and ``without_effect``, the fields of a config that it has no use for, as paths such as
    ``optimization.graph.level``: whoever sets them is warned.
    """

    platform: str
    """Platform name that goes with the backend, e.g. ``"onnxruntime_onnx"``; may be empty."""
    default_filename: str
    """File or folder looked for in a version folder when the config names none."""
    default_count: int
    """Instances of a group that names no count."""

    def complete(self, config: Any, path: Path) -> None:
        """Fill missing inputs, outputs and batching of a ModelConfig message from the model at ``path``.

        Raises:
            ConfigError: The config cannot be used.
            LoadError: The model contradicts the config, or cannot be read.
        """
        ...

    def open(self, settings: ModelSettings, path: Path, instance_name: str) -> Instance:
        """Load the model file at ``path`` for one instance, and check it against the settings.

        Raises:
            LoadError: The file cannot be loaded or does not fit the config.
            StartError: A package that the backend needs is not installed.
        """
        ...
