"""The life of the process: what the server tells it, one message after the other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any, Dict, List, Optional

from repobuild_serve.python_child import current
from repobuild_serve.python_child.channel import Channel
from repobuild_serve.python_child.execution import Executor
from repobuild_serve.python_child.failures import BackendError, told
from repobuild_serve.python_child.host import Host
from repobuild_serve.python_child.model import Model, model_class
from repobuild_serve.python_child.model_config import ModelConfig


def serve(main_descriptor: int, side_descriptor: int) -> None:
    """Do what the server says until it says, or shows by closing the socket, that it is over."""
    sys.argv[:] = [""]
    main, side = (socket.socket(fileno=number) for number in (main_descriptor, side_descriptor))
    for connection in (main, side):
        # Programs that the model starts must not hold the sockets, whose closing is the end of the model.
        connection.set_inheritable(False)
    host = Host(Channel(main), Channel(side))
    current.set_host(host)
    _leave_ending_to_the_server(host)
    host.start()
    host.send({"op": "hello", "pid": os.getpid()})
    executor: Optional[Executor] = None
    model: Optional[Model] = None
    while True:
        frame = host.main.receive()
        if frame is None:
            break
        head, buffers = frame
        if head["op"] == "execute":
            assert executor is not None
            executor.run(head, buffers)
            # The arrays of the batch need not outlive it.
            del frame, head, buffers
        elif head["op"] == "initialize":
            try:
                model = _initialized(host, head)
            except BaseException as exc:  # noqa: BLE001 - whatever the model raises is why it cannot be loaded
                host.send({"op": "failed", "text": told(exc)})
                break
            executor = _executor(host, model, head)
            host.send({"op": "ready", "check": model.has_check})
        elif head["op"] == "complete":
            host.send(_completed(host, head))
            break
        elif head["op"] == "finalize":
            break
    if model is not None:
        model.finalize()
    for stream in (sys.stdout, sys.stderr):
        # A model may have closed them, or put something else in their place.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    # Threads that the model left behind must not keep the process.
    os._exit(0)


def _leave_ending_to_the_server(host: Host) -> None:
    """Live through signals that are sent to all processes of the server at once.

    A handler in place of SIG_IGN, which programs that the model starts would inherit. Forks of this process
    get the defaults back, and let go of the server.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    os.register_at_fork(after_in_child=_default_signals)
    os.register_at_fork(after_in_child=host.leave)


def _default_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _initialized(host: Host, head: Dict[str, Any]) -> Model:
    host.model_folder = head["folder"]
    kind = model_class(head["path"], head["version_folder"])
    instance = kind()
    if hasattr(instance, "initialize"):
        instance.initialize(head["args"])
    model = Model(instance, head["path"])
    host.check_ready = model.check_ready
    return model


def _executor(host: Host, model: Model, head: Dict[str, Any]) -> Executor:
    inputs: List[Any] = head["inputs"]
    return Executor(host, model, head["instance"], inputs, head["outputs"], decoupled=head["decoupled"])


def _completed(host: Host, head: Dict[str, Any]) -> Dict[str, Any]:
    host.model_folder = head["folder"]
    try:
        config = _auto_completed(head).as_dict()
        # What is no JSON, such as a dim of a NumPy type, is the model's mistake, too.
        json.dumps(config)
    except BaseException as exc:  # noqa: BLE001 - whatever the model raises is why it cannot be loaded
        return {"op": "failed", "text": told(exc)}
    return {"op": "completed", "config": config}


def _auto_completed(head: Dict[str, Any]) -> ModelConfig:
    kind = model_class(head["path"], head["version_folder"])
    config = ModelConfig(head["config"])
    if hasattr(kind, "auto_complete_config"):
        config = kind.auto_complete_config(config)
    if not isinstance(config, ModelConfig):
        raise BackendError(
            f"auto_complete_config function in model '{head['model']}' must return a valid pb.ModelConfig "
            "object."
        )
    return config
