"""Reading config.pbtxt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def parse_config(path: Path) -> Any:
    """Parse a config.pbtxt into a ModelConfig message; a missing file is an empty message.

    Raises:
        ConfigError: The file cannot be read or is not a ModelConfig in text format; the text has line and
            column.
    """
    config = model_config_class()()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return config
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"failed to read text proto from {path}: {exc}") from exc
    return parse_text(text, path, config)


def parse_text(text: str, path: Path, config: Any) -> Any:
    """Fill ``config`` from text format; ``path`` is only named in errors.

    Raises:
        ConfigError: The text is not a ModelConfig.
    """
    from google.protobuf import text_format

    try:
        text_format.Parse(text, config)
    except text_format.ParseError as exc:
        raise ConfigError(f"failed to read text proto from {path}: {exc}") from exc
    except RecursionError as exc:
        raise ConfigError(f"failed to read text proto from {path}: nested too deeply") from exc
    return config
