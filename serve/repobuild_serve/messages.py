"""The ModelConfig message classes, without importing the client library that ships them.

tritonclient carries the descriptors of Triton's messages as a bytes literal in its generated modules.
Importing them would load grpc (46 MB, 0.1 s) and put the files in protobuf's process-wide pool, so the
literal is read out of the source text and added to a pool of our own.
"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any

from repobuild_serve.errors import StartError
from repobuild_serve.once import made_once


@made_once
def model_config_class() -> Any:
    """The message class of ``inference.ModelConfig``, which is one: messages of two classes are never equal.

    Raises:
        StartError: protobuf or the tritonclient files are not installed, or not as expected.
    """
    try:
        from google.protobuf import descriptor_pool, message_factory
    except ImportError as exc:
        raise StartError(
            "protobuf-missing",
            "the protobuf package is not installed",
            hint="pip install 'protobuf>=5.29,<7'",
            exit_code=7,
        ) from exc
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_descriptor_literal(_generated_module("model_config_pb2.py")))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelConfig"))


def _generated_module(name: str) -> Path:
    # find_spec of a top-level package locates it and runs nothing of it.
    spec = importlib.util.find_spec("tritonclient")
    tried = [Path(folder, "grpc", name) for folder in (spec.submodule_search_locations or [] if spec else [])]
    for path in tried:
        if path.is_file():
            return path
    raise StartError(
        "triton-messages-missing",
        "Triton's message definitions were not found",
        evidence=tuple(f"not there: {path}" for path in tried)
        or ("the package tritonclient is not installed",),
        hint="pip install 'tritonclient[grpc]>=2.60'",
        exit_code=7,
    )


def _descriptor_literal(path: Path) -> bytes:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="AddSerializedFile"), args=[ast.Constant(value=bytes(literal))]
            ):
                return literal
    raise StartError(
        "triton-messages-unreadable",
        "Triton's message definitions have an unknown form",
        evidence=(f"no AddSerializedFile(b'...') in {path}",),
        hint="install a tritonclient release from 2.60 on",
        exit_code=7,
    )
