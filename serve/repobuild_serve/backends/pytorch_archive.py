"""Telling what a PyTorch file is before PyTorch opens it, and refusing what only a pickle can load.

Unpickling runs whatever code the file names. TorchScript is read by PyTorch's own reader, which knows tensors
and TorchScript types only; a PT2 archive is plain too, unless one of its members says otherwise.
"""

from __future__ import annotations

import enum
import io
import json
import zipfile
from pathlib import Path
from typing import Any

from repobuild_serve.errors import Code, LoadError

_PICKLE_START = b"\x80"
_PICKLED_NAMES = ("opaque_obj_", "custom_obj_")


class Kind(enum.Enum):
    """What a file holds; the value is how errors call it."""

    SCRIPT = "a TorchScript file"
    EXPORTED = "a PT2 archive with an exported program"
    COMPILED = "a PT2 archive with an AOTInductor package"


def kind_of(name: str, path: Path) -> Kind:
    """What the file of the model called ``name`` is.

    Raises:
        LoadError: It is nothing that may be loaded.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.partition("/")[2] or member for member in archive.namelist()}
    except OSError as exc:
        raise _failed(name, f"'{path}' cannot be read: {exc.strerror}") from exc
    except zipfile.BadZipFile as exc:
        with path.open("rb") as stream:
            start = stream.read(1)
        if start == _PICKLE_START:
            raise _pickled(name, path) from exc
        raise _failed(name, f"'{path}' is neither TorchScript nor a PT2 archive") from exc
    if "archive_format" in members:
        if any(member.startswith("data/aotinductor/model/") for member in members):
            return Kind.COMPILED
        if "models/model.json" in members:
            return Kind.EXPORTED
        raise _failed(name, f"the PT2 archive '{path}' has no model that is called 'model'")
    if "constants.pkl" in members and any(member.startswith("code/") for member in members):
        return Kind.SCRIPT
    if "serialized_exported_program.json" in members:
        raise _failed(name, f"'{path}' was exported by a PyTorch before 2.8; export it again")
    if "data.pkl" in members:
        raise _pickled(name, path)
    raise _failed(name, f"'{path}' is neither TorchScript nor a PT2 archive")


def refuse_pickles(torch: Any, name: str, path: Path) -> None:
    """Check that PyTorch can load the PT2 archive of a model without unpickling anything but tensors.

    Raises:
        LoadError: A member of the archive is a pickle of something else.
    """
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            inner = member.partition("/")[2]
            if inner.startswith(("data/weights/", "data/constants/")):
                if inner.endswith(".pt"):
                    raise _pickled_member(name, inner)
                if inner.endswith("_config.json"):
                    _check_payloads(name, inner, archive.read(member))
            elif inner.startswith("data/sample_inputs/"):
                data = archive.read(member)
                try:
                    if data:
                        torch.load(io.BytesIO(data), weights_only=True)
                except Exception as exc:
                    raise _pickled_member(name, inner) from exc


def _check_payloads(name: str, member: str, data: bytes) -> None:
    try:
        payloads = json.loads(data)["config"]
        pickled = [
            key
            for key, payload in payloads.items()
            if payload["use_pickle"] or payload["path_name"].startswith(_PICKLED_NAMES)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise _failed(name, f"'{member}' of the PT2 archive is not what PyTorch writes: {exc}") from exc
    if pickled:
        raise _pickled_member(name, f"{member}: {pickled[0]}")


def _pickled(name: str, path: Path) -> LoadError:
    return _failed(
        name,
        f"'{path}' is a pickle as torch.save writes it, and loading a pickle runs code that it names; "
        "save the "
        "model with torch.jit.script(model).save(...) or torch.export.save(...)",
    )


def _pickled_member(name: str, member: str) -> LoadError:
    return _failed(
        name, f"'{member}' of the PT2 archive is a pickle, and loading a pickle runs code that it names"
    )


def _failed(name: str, reason: str) -> LoadError:
    return LoadError(f"failed to load model '{name}': {reason}", Code.INTERNAL)
