"""Completing a config by the model's own ``auto_complete_config``, in a process that ends afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from repobuild_serve.backends.python.child import START
from repobuild_serve.backends.python.environment import interpreter
from repobuild_serve.backends.python.logging_lines import log_line
from repobuild_serve.config.complete import complete_config
from repobuild_serve.config.printing import config_document
from repobuild_serve.errors import Code, LoadError
from repobuild_serve.python_child.channel import Channel

_MERGED = ("max_batch_size", "input", "output", "model_transaction_policy")
_NO_CALLS = "this is not possible while a config is completed"


def complete(config: Any, path: Path) -> None:
    """Let the model fill in its config. Not on the loop's thread, which it blocks.

    Args:
        config: The ModelConfig message, changed in place.
        path: The model file.

    Raises:
        LoadError: The model fails, or says something that is no config.
    """
    completed = type(config)()
    completed.CopyFrom(config)
    complete_config(completed, 1)
    document = _ask(completed, path)
    _merge(config, document)


def _ask(config: Any, path: Path) -> dict[str, Any]:
    """The config as the model returns it."""
    folder = path.parent.parent
    runs = interpreter({key: value.string_value for key, value in config.parameters.items()}, folder)
    message = {
        "op": "complete",
        "model": config.name,
        "path": os.fspath(path),
        "folder": os.fspath(path.parent),
        "version_folder": path.parent.name,
        "config": json.dumps(config_document(config), separators=(",", ":")),
    }
    (main, its_main), (side, its_side) = socket.socketpair(), socket.socketpair()
    with main, side, its_main, its_side:
        numbers = its_main.fileno(), its_side.fileno()
        try:
            process = subprocess.Popen(
                [runs.program, "-u", "-B", str(START), *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=numbers,
                env=runs.environment,
                start_new_session=True,
            )
        except OSError as exc:
            raise LoadError(f"{runs.program} cannot be run: {exc}", Code.INTERNAL) from exc
        its_main.close()
        its_side.close()
        try:
            answer = _converse(Channel(main), Channel(side), message)
        finally:
            # The group's number cannot have been given away: its leader has not been waited for.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if answer is None:
        raise LoadError(f"Stub process '{config.name}' is not healthy.", Code.INTERNAL)
    if answer["op"] == "failed":
        raise LoadError(answer["text"], Code.INTERNAL)
    document: dict[str, Any] = answer["config"]
    return document


def _converse(main: Channel, side: Channel, message: dict[str, Any]) -> Any:
    """Send the message; the answer, None if the process ended without one."""
    while (frame := main.receive()) is not None:
        head = frame[0]
        if head["op"] == "hello":
            main.send(message)
        elif head["op"] in {"completed", "failed"}:
            return head
        elif head["op"] == "log":
            log_line(message["model"], head)
        elif "call" in head:
            side.send({"op": "reply", "call": head["call"], "last": True, "error": [1, _NO_CALLS]})
    return None


def _merge(config: Any, document: dict[str, Any]) -> None:
    """Take over what a model may set: tensors, the largest batch, batching, and whether it is decoupled."""
    from google.protobuf import json_format

    told = type(config)()
    try:
        json_format.ParseDict({key: document[key] for key in _MERGED if key in document}, told)
        if "dynamic_batching" in document:
            json_format.ParseDict(document["dynamic_batching"], told.dynamic_batching)
    except (json_format.ParseError, TypeError, ValueError) as exc:
        raise LoadError(
            f"auto_complete_config of model '{config.name}' returned something that is no config: {exc}",
            Code.INTERNAL,
        ) from exc
    config.max_batch_size = told.max_batch_size
    for section in ("input", "output"):
        config.ClearField(section)
        getattr(config, section).extend(getattr(told, section))
    if told.HasField("model_transaction_policy"):
        config.model_transaction_policy.CopyFrom(told.model_transaction_policy)
    if "dynamic_batching" in document and not config.WhichOneof("scheduling_choice"):
        config.dynamic_batching.CopyFrom(told.dynamic_batching)
        config.dynamic_batching.SetInParent()
