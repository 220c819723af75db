"""Triton's ModelConfig message, and its text form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repobuild.errors import Evidence, InputInvalid
from repobuild.interrupts import import_whole


def model_config(**fields: Any) -> Any:
    """A new ``inference.ModelConfig`` message."""
    import_whole(["tritonclient.grpc.model_config_pb2"])
    from tritonclient.grpc import model_config_pb2

    return model_config_pb2.ModelConfig(**fields)


def parse_config(text: str, file: Path | str) -> Any:
    """Parse config.pbtxt as Triton does.

    Args:
        text: The text.
        file: Its name, for errors.

    Raises:
        InputInvalid: It is not a ModelConfig; line, column and the parser's words are the evidence.
    """
    from google.protobuf import text_format

    try:
        return text_format.Parse(text, model_config())
    except text_format.ParseError as problem:
        line = problem.GetLine()
        raise InputInvalid(
            "config-unreadable",
            "config.pbtxt is not a Triton model configuration",
            (Evidence(str(problem), file=str(file), line=line),),
            "see model_config.proto of Triton for the fields and their types",
        ) from problem


def format_config(message: Any) -> str:
    """The message as the text of a config.pbtxt."""
    from google.protobuf import text_format

    text: str = text_format.MessageToString(message, as_utf8=True)
    return text
