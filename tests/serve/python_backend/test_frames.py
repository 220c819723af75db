"""The messages between the server and python models."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repobuild_serve.backends.python.coding import Coding
from repobuild_serve.backends.python.frame_protocol import FrameProtocol
from repobuild_serve.config.settings import TensorConfig
from repobuild_serve.datatypes import BY_WIRE_NAME
from repobuild_serve.python_child.channel import Channel
from repobuild_serve.python_child.frames import ALIGNMENT, encode
from repobuild_serve.python_child.tensor import Tensor

FRAMES = st.lists(
    st.tuples(
        st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=300), max_size=4),
        st.lists(st.binary(max_size=70), max_size=4),
    ),
    max_size=6,
)


def feed(protocol, data, pieces):
    """Hand bytes to a protocol in pieces."""
    while data:
        buffer = protocol.get_buffer(-1)
        count = min(len(buffer), len(data), next(pieces))
        buffer[:count] = data[:count]
        data = data[count:]
        protocol.buffer_updated(count)


@settings(deadline=None)
@given(FRAMES, st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_frames_arrive_as_they_were_however_they_are_cut(frames, cuts):
    got = []
    protocol = FrameProtocol(
        lambda head, buffers: got.append((head, [bytes(b) for b in buffers])), lambda: None
    )
    data = b"".join(bytes(piece) for head, buffers in frames for piece in encode(head, buffers))
    feed(protocol, data, (cuts[i % len(cuts)] for i in range(len(data) + 1)))
    assert got == frames


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_537, 1 << 20])
def test_heads_and_buffers_larger_than_any_room_set_aside_arrive(size):
    here, there = socket.socketpair()
    with here, there:
        head, data = {"text": "x" * size}, bytes(size)
        threading.Thread(target=lambda: [Channel(there).send(head, [data, b"12"]) for _ in range(2)]).start()
        channel = Channel(here)
        for _ in range(2):
            got, buffers = channel.receive()
            assert got == head
            assert [bytes(buffer) for buffer in buffers] == [data, b"12"]
            buffers[1][0] = 7
            assert np.frombuffer(buffers[1], np.uint8).ctypes.data % ALIGNMENT == 0
        got = []
        protocol = FrameProtocol(lambda head, buffers: got.append((head, len(buffers[0]))), lambda: None)
        feed(protocol, b"".join(bytes(piece) for piece in encode(head, [data])), iter(lambda: 1 << 16, 0))
        assert got == [(head, size)]


def test_the_end_of_the_other_side_is_no_message():
    here, there = socket.socketpair()
    with here:
        there.sendall(encode({"half": "a message"})[0])
        there.close()
        assert Channel(here).receive() is None


def test_text_that_is_no_unicode_does_not_break_a_message():
    got = []
    protocol = FrameProtocol(lambda head, buffers: got.append(head), lambda: None)
    feed(protocol, b"".join(encode({"text": "a\udc80b"})), iter(lambda: 1 << 16, 0))
    assert got == [{"text": "a?b"}]


@pytest.mark.parametrize(
    "array",
    [
        np.array(5, dtype=np.int32),
        np.zeros((0, 3), dtype=np.float16),
        np.arange(12, dtype=np.int64).reshape(3, 4)[:, ::2],
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.array([[b"a", "b", 3]], dtype=object),
        np.array([b"aa", b"b"]),
        np.array([[True, False]]),
    ],
    ids=["scalar", "empty", "strided", "fortran", "objects", "bytes", "bool"],
)
def test_tensors_survive_their_packed_form(array):
    tensor = Tensor("T", array)
    packed = memoryview(bytearray(tensor.buffer()))
    again = Tensor.received("T", tensor.triton_dtype(), tensor.shape(), packed).as_numpy()
    assert again.shape == array.shape
    if array.dtype == object:
        assert again.tolist() == [[b"a", b"b", b"3"]]
    else:
        assert again.tolist() == array.tolist()


def test_a_response_that_cannot_be_leaves_the_next_one_its_data():
    outputs = [TensorConfig(name, BY_WIRE_NAME["INT32"], (1,), (1,)) for name in "AB"]
    coding = Coding(SimpleNamespace(inputs=(), outputs=outputs, batched=False))
    told = {"o": [["A", 8, [1]], ["B", 8, [1]]]}
    buffers = [memoryview(piece) for piece in (b"cut", b"1111", b"2222", b"3333")]
    first, second = (coding.response(number, told, buffers) for number in (1, 2))
    assert first.error is not None
    assert [bytes(tensor.data) for tensor in second.outputs] == [b"2222", b"3333"]
