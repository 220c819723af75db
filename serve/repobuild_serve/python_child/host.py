"""The state of the process: its sockets to the server, and what it is asked and asks."""

from __future__ import annotations

import os
import queue
import signal
import threading
from typing import Any, Callable, Dict, Optional, Sequence

from repobuild_serve.python_child.channel import Channel, Frame
from repobuild_serve.python_child.failures import TritonModelException


class Host:
    """Both sockets to the server.

    The main one carries everything to the server, and what the main thread is to do. What other threads wait
    for comes through the side one, so that a model that runs can be answered and asked.

    Args:
        main: The main socket.
        side: The side socket.

    Attributes:
        model_folder: Folder of the model.
        check_ready: Asks the model whether it is ready; None as long as it is not initialized.
        forked: Whether this is a process that the model forked, which must not talk in the model's name.
    """

    def __init__(self, main: Channel, side: Channel) -> None:
        self.main = main
        self.model_folder = ""
        self.check_ready: Optional[Callable[[], Dict[str, Any]]] = None
        self._side = side
        self._lock = threading.Lock()
        self._number = 0
        self._waiting: Dict[int, queue.SimpleQueue[Frame]] = {}
        self._deferred: queue.SimpleQueue[Dict[str, Any]] = queue.SimpleQueue()
        self.forked = False

    def leave(self) -> None:
        """Let go of the server, in a process that the model forked.

        It must neither talk in between nor hold the sockets, whose closing is how the server sees a crash.
        """
        self.forked = True
        self.main.close()
        self._side.close()

    def start(self) -> None:
        """Start listening at the side socket."""
        threading.Thread(target=self._listen, name="server", daemon=True).start()
        threading.Thread(target=self._send_deferred, name="deferred", daemon=True).start()

    def send(self, head: Any, buffers: Sequence[Any] = ()) -> None:
        """Send a message.

        Raises:
            TritonModelException: This is a process that the model forked.
        """
        if self.forked:
            raise TritonModelException("this works only in the process of the model, not in a fork of it")
        self.main.send(head, buffers)

    def ask(self, head: Dict[str, Any], buffers: Sequence[Any] = ()) -> queue.SimpleQueue[Frame]:
        """Send a message that is replied to; where the replies will be."""
        if self.forked:
            # Before the lock, which another thread may have held when this process came to be.
            self.send(head)
        replies: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        with self._lock:
            self._number += 1
            number = self._number
            self._waiting[number] = replies
        self.send({**head, "call": number}, buffers)
        return replies

    def defer(self, head: Dict[str, Any]) -> None:
        """Let another thread send a message: for finalizers, whose thread may hold the lock of the socket."""
        self._deferred.put(head)

    def _send_deferred(self) -> None:
        while True:
            self.send(self._deferred.get())

    def _listen(self) -> None:
        try:
            while True:
                frame = self._side.receive()
                if frame is None:
                    break
                self._take(frame)
        finally:
            # The server is gone, and nothing of this model may outlive it.
            os.killpg(0, signal.SIGKILL)

    def _take(self, frame: Frame) -> None:
        head = frame[0]
        if head["op"] == "reply":
            with self._lock:
                replies = self._waiting.pop(head["call"]) if head["last"] else self._waiting[head["call"]]
            replies.put(frame)
        elif head["op"] == "check":
            # On a thread of its own, for the model may ask the server something before it answers.
            threading.Thread(target=self._check, name="is_ready", daemon=True).start()

    def _check(self) -> None:
        assert self.check_ready is not None
        self.send({"op": "checked", **self.check_ready()})
