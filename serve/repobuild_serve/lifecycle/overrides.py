"""What a load request brings along: a config, and files, in place of those on disk."""

from __future__ import annotations

import base64
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repobuild_serve.errors import Code, ConfigError, RequestError

_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/]+")
FILE_PREFIX = "file:"
"""What the name of a parameter that holds a file begins with."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """The parameters of a load.

    Attributes:
        config: A ModelConfig as JSON; None to read the one on disk.
        files: Content by path inside the model folder; if there is any, nothing is read from disk.
    """

    config: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


def overrides_from(parameters: Mapping[str, str | bytes]) -> Overrides:
    """Sort out the parameters of a load request (see ``Directory.load``).

    Raises:
        RequestError: A parameter is unknown or has the wrong type.
    """
    config: str | None = None
    files: dict[str, bytes] = {}
    for name, value in parameters.items():
        if name == "config":
            if not isinstance(value, str):
                raise RequestError("invalid value type for load parameter 'config', expected string_param.")
            config = value
        elif name.startswith(FILE_PREFIX):
            if not isinstance(value, bytes):
                raise RequestError(f"invalid value type for load parameter '{name}', expected bytes_param.")
            files[name.removeprefix(FILE_PREFIX)] = value
        else:
            raise RequestError(f"unrecognized load parameter '{name}'.")
    return Overrides(config, files)


def decode_base64(text: str) -> bytes:
    """Decode as leniently as Triton does: what is no base64 digit is skipped, an odd rest is dropped."""
    digits = _NOT_BASE64.sub(b"", text.encode("utf-8", "replace"))
    if len(digits) % 4 == 1:
        digits = digits[:-1]
    return base64.b64decode(digits + b"=" * (-len(digits) % 4))


class Scratch:
    """A private folder that stands in for a model folder, removed when no model needs it any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="repobuild-serve-"))

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write the files of an override.

        Raises:
            ConfigError: A path leads out of the folder, or is a file and a folder at once.
        """
        for name, content in files.items():
            path = self._inside(name)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except (FileExistsError, NotADirectoryError, IsADirectoryError) as exc:
                raise ConfigError(
                    f"Invalid file parameter 'file:{name}', directory has been created as a file"
                ) from exc
            except OSError as exc:
                raise ConfigError(f"Invalid file parameter 'file:{name}': {exc.strerror}") from exc

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _inside(self, name: str) -> Path:
        # Nothing but files and folders is ever made here, so the text alone tells where a path leads.
        if not name or "\0" in name:
            raise ConfigError(f"Invalid file parameter 'file:{name}': no path inside the model folder")
        path = os.path.normpath(f"{self.path}/{name.lstrip('/')}")
        if not path.startswith(f"{self.path}{os.sep}"):
            raise ConfigError(
                f"Invalid file parameter 'file:{name}' with normalized path '{path}' must stay within model "
                "directory."
            )
        return Path(path)


def check_name(name: str) -> None:
    """Check the name of a model that is to be loaded (V11 of the Triton contract).

    Raises:
        RequestError: It is blank, or would lead out of the repository.
    """
    trimmed = name.strip()
    if not trimmed:
        raise RequestError("Model name cannot be empty. Please enter a valid name to deploy.")
    if trimmed in {".", ".."} or "/" in trimmed or "\0" in trimmed:
        raise RequestError(
            f"invalid model name '{name}', model name must not contain path traversal characters",
            Code.INVALID_ARG,
        )
