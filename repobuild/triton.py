"""Triton's ModelConfig message, and its text form."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from repobuild.errors import Evidence, InputInvalid
from repobuild.interrupts import import_whole
from repobuild.pbtxt import Refused, Rewritten, rewritten


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
        read = as_triton_reads(text)
        if read.garbled:
            raise _unreadable("the escapes of a string make no UTF-8", file, read.garbled[0])
        return text_format.Parse(read.text, model_config())
    except Refused as problem:
        raise _unreadable(str(problem), file, problem.line) from problem
    except text_format.ParseError as problem:
        raise _unreadable(str(problem), file, problem.GetLine()) from problem
    except ValueError as problem:
        # A number too large for an enum, which the parser does not turn into its own error.
        raise _unreadable(str(problem), file, 1) from problem


def as_triton_reads(text: str) -> Rewritten:
    """The text of a configuration such that Python's parser reads what Triton reads.

    Raises:
        Refused: Triton's parser refuses a token.
    """
    return rewritten(text, _floats())


@cache
def _floats() -> frozenset[str]:
    """Names of the fields of ModelConfig, at any depth, that hold floating-point numbers."""
    found, seen, waiting = set(), set(), [model_config().DESCRIPTOR]
    while waiting:
        message = waiting.pop()
        if message.full_name in seen:
            continue
        seen.add(message.full_name)
        found |= {f.name for f in message.fields if f.cpp_type in (f.CPPTYPE_FLOAT, f.CPPTYPE_DOUBLE)}
        waiting += [f.message_type for f in message.fields if f.message_type is not None]
    return frozenset(found)


def _unreadable(said: str, file: Path | str, line: int | None) -> InputInvalid:
    return InputInvalid(
        "config-unreadable",
        "config.pbtxt is not a Triton model configuration",
        (Evidence(said, file=str(file), line=line),),
        "see model_config.proto of Triton for the fields and their types",
    )


def format_config(message: Any) -> str:
    """The message as the text of a config.pbtxt."""
    from google.protobuf import text_format

    text: str = text_format.MessageToString(message, as_utf8=True)
    return text
