"""Reading config.pbtxt as protobuf's C++ text parser does, which is Triton's."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from repobuild_serve.config.textformat import Refused, rewritten
from repobuild_serve.errors import ConfigError
from repobuild_serve.messages import model_config_class


def config_path(model_folder: Path, config_name: str = "") -> Path:
    """The config file of a model: ``configs/<config_name>.pbtxt`` if there is one, else ``config.pbtxt``.

    Args:
        model_folder: The model's folder.
        config_name: Value of ``--model-config-name``; empty for none.

    Raises:
        ConfigError: The file cannot be looked for.
    """
    if config_name:
        custom = model_folder / "configs" / f"{config_name}.pbtxt"
        try:
            if custom.exists():
                return custom
        except (OSError, ValueError) as exc:
            raise ConfigError(f"failed to read text proto from {custom}: {exc}") from exc
    return model_folder / "config.pbtxt"


def parse_config(path: Path, *, required: bool = False) -> Any:
    """Parse a config.pbtxt into a ModelConfig message.

    Bytes that are no UTF-8 may stand in comments, as for Triton.

    Args:
        path: The file.
        required: Whether it must be there; if not, a missing file is an empty message.

    Raises:
        ConfigError: The file cannot be read or is not a ModelConfig in text format; the text has line and
            column.
    """
    config = model_config_class()()
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError as exc:
        if required:
            raise ConfigError(f"failed to open text file for read {path}: {exc.strerror}") from exc
        return config
    except OSError as exc:
        raise ConfigError(f"failed to read text proto from {path}: {exc}") from exc
    return parse_text(text, path, config)


def parse_text(text: str, path: Path, config: Any) -> Any:
    """Fill ``config`` from text format; ``path`` is only named in errors.

    Raises:
        ConfigError: The text is not a ModelConfig; the text has line and column.
    """
    from google.protobuf import text_format

    said = f"failed to read text proto from {path}"
    try:
        read = rewritten(text, _float_fields())
        if read.garbled:
            # Triton takes such strings, and prints them as empty ones.
            raise ConfigError(f"{said}: {read.garbled[0]}:1 : the escapes of a string make no UTF-8")
        text_format.Parse(read.text, config)
    except Refused as exc:
        raise ConfigError(f"{said}: {exc.line}:{exc.column} : {exc}") from exc
    except (text_format.ParseError, ValueError) as exc:
        # A number too large for an enum is a ValueError that the parser does not turn into its own.
        raise ConfigError(f"{said}: {exc}") from exc
    except RecursionError as exc:
        raise ConfigError(f"{said}: nested too deeply") from exc
    return config


@functools.cache
def _float_fields() -> frozenset[str]:
    """Names of the fields, at any depth, that hold floating-point numbers."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [model_config_class().DESCRIPTOR]
    while waiting:
        message = waiting.pop()
        if message.full_name in seen:
            continue
        seen.add(message.full_name)
        found |= {f.name for f in message.fields if f.cpp_type in {f.CPPTYPE_FLOAT, f.CPPTYPE_DOUBLE}}
        waiting += [f.message_type for f in message.fields if f.message_type is not None]
    return frozenset(found)
