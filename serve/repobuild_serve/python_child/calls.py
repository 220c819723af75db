"""What a model asks of the server: requests to other models, and their loading."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

from repobuild_serve.python_child import current
from repobuild_serve.python_child.channel import Frame
from repobuild_serve.python_child.failures import TritonModelException
from repobuild_serve.python_child.responses import InferenceResponse, TritonError
from repobuild_serve.python_child.tensor import Tensor

if TYPE_CHECKING:
    from repobuild_serve.python_child.host import Host
    from repobuild_serve.python_child.requests import InferenceRequest


def infer(host: Host, request: InferenceRequest, *, decoupled: bool) -> Any:
    """Make a request to a model and wait for its response, or its first one.

    Returns:
        The response; with ``decoupled``, an iterator over all.
    """
    buffers: List[Any] = []
    head: Dict[str, Any] = {"op": "infer", "decoupled": decoupled, **request.packed(buffers)}
    replies = host.ask(head, buffers)
    return ResponseIterator(replies) if decoupled else _response(replies.get())


class ResponseIterator:
    """The responses to a request, as they come; once all have come, it starts again from the first."""

    def __init__(self, replies: queue.SimpleQueue[Frame]) -> None:
        self._replies = replies
        self._responses: List[InferenceResponse] = []
        self._position = 0
        self._done = False

    def __iter__(self) -> Iterator[InferenceResponse]:
        if self._done and self._position >= len(self._responses):
            self._position = 0
        return self

    def __next__(self) -> InferenceResponse:
        if not self._done:
            frame = self._replies.get()
            self._done = bool(frame[0]["last"])
            self._responses.append(_response(frame))
        elif self._position >= len(self._responses):
            raise StopIteration
        self._position += 1
        return self._responses[self._position - 1]

    def cancel(self) -> None:
        """Ask for no further responses; the request goes on all the same."""


def _response(frame: Frame) -> InferenceResponse:
    head, buffers = frame
    if "error" in head:
        code, text = head["error"]
        return InferenceResponse(error=TritonError(text, code))
    tensors = [
        Tensor.received(name, number, shape, buffer)
        for (name, number, shape), buffer in zip(head.get("outputs", ()), buffers)
    ]
    return InferenceResponse(tensors, parameters=head.get("parameters"))


def load_model(model_name: str, config: str = "", files: Optional[Dict[str, bytes]] = None) -> None:
    """Load or reload a model of the repository.

    Args:
        model_name: Its name.
        config: A config as JSON that takes the place of its own.
        files: Contents by ``file:PATH``, for a model made of these files.

    Raises:
        TritonModelException: It cannot be loaded.
    """
    if files is not None and not isinstance(files, dict):
        raise TritonModelException(
            f"failed to load model '{model_name}', files should be a dictionary of file paths and "
            "file contents"
        )
    given = files or {}
    head = {"op": "load", "model": model_name, "config": config, "files": list(given)}
    _checked("Failed to load model", head, [memoryview(content) for content in given.values()])


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unload a model.

    Raises:
        TritonModelException: Models cannot be unloaded.
    """
    _checked(
        "Failed to unload model", {"op": "unload", "model": model_name, "dependents": bool(unload_dependents)}
    )


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether a model can be asked.

    Raises:
        TritonModelException: The version is no number.
    """
    head = {"op": "model_ready", "model": model_name, "version": model_version}
    return bool(_checked("Failed to check model readiness", head)["ready"])


def _checked(what: str, head: Dict[str, Any], buffers: Any = ()) -> Dict[str, Any]:
    reply: Dict[str, Any] = current.host().ask(head, buffers).get()[0]
    if "error" in reply:
        raise TritonModelException(f"{what}: {reply['error'][1]}")
    return reply
