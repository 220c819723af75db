"""Broken requests in great number: the server answers or closes, and goes on."""

from __future__ import annotations

import random
import socket
import struct
import time

import pytest

JSON = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,2],"data":[[0.5,0.25]]}]}'
HEADER = (
    b'{"id":"x","inputs":[{"name":"IN","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}],'
    b'"outputs":[{"name":"OUT","parameters":{"binary_data":true,"classification":1}}],'
    b'"parameters":{"binary_data_output":true,"timeout":5,"sequence_id":3,"priority":1}}'
)
ROW = struct.pack("<2f", 1, 2)
PIECES = (
    *(
        b"null",
        b"true",
        b"1e999",
        b"-1",
        b"NaN",
        b"[",
        b"]",
        b"{",
        b"}",
        b'"',
        b"\\",
        b",",
        b"0",
        b'""',
        b"[[]]",
    ),
    *(b"\xff", b"\x00", b"\r\n", b"BYTES", b"shape", b"data", b'"id":{}', b"1.0", b"9223372036854775807"),
    *(
        b"18446744073709551615",
        b"99999999999999999999",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 9\r\n",
    ),
)


def post(body, extra=b""):
    path = b"/v2/models/id_fp32/infer"
    return b"POST %b HTTP/1.1\r\nHost: a\r\n%bContent-Length: %d\r\n\r\n%b" % (path, extra, len(body), body)


def binary(header):
    return post(header + ROW, b"Inference-Header-Content-Length: %d\r\n" % len(header))


SEEDS = (
    post(JSON),
    binary(HEADER),
    post(ROW, b"Inference-Header-Content-Length: 0\r\n"),
    post(JSON, b"Expect: 100-continue\r\n"),
    post(JSON, b"Accept-Encoding: gzip;q=0.5, deflate\r\n"),
    b"GET /v2/models/id_fp32/config HTTP/1.1\r\n\r\n",
    b'POST /v2/repository/index HTTP/1.1\r\nContent-Length: 14\r\n\r\n{"ready":true}',
    b"POST /v2/models/id_fp32/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4e\r\n%b\r\n0\r\n\r\n"
    % JSON,
)


def mutated(data, rnd):
    text = bytearray(data)
    for _ in range(rnd.randint(1, 4)):
        at, choice = rnd.randrange(len(text) + 1), rnd.random()
        if choice < 0.7:
            text[at : at + rnd.choice([0, 0, 1, 6])] = rnd.choice(PIECES)
        elif choice < 0.85:
            del text[at : at + rnd.randint(1, 9)]
        else:
            text[at : at + 1] = bytes([rnd.randrange(256)])
    return bytes(text)


def one(rnd):
    choice = rnd.random()
    if choice < 0.3:
        return mutated(rnd.choice(SEEDS), rnd)
    if choice < 0.6:
        return post(mutated(JSON, rnd))
    return binary(mutated(HEADER, rnd)) if choice < 0.9 else rnd.choice(SEEDS)


def answer(server, data, cut):
    """What comes back; a server that neither answers nor closes is a failure."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        pieces = []
        try:
            connection.sendall(data[:cut])
            connection.sendall(data[cut:])
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                pieces.append(piece)
        except TimeoutError:
            raise AssertionError(data) from None
        except OSError:  # the server has closed first
            pieces.append(b"")
        return b"".join(pieces)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_is_sent_stops_the_server(server, seed):
    rnd = random.Random(seed)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        data = b"".join(one(rnd) for _ in range(rnd.randint(1, 5)))
        assert b"internal error" not in answer(server, data, rnd.randrange(len(data))), data
    assert server.infer("id_fp32", JSON).json["outputs"][0]["data"] == [0.5, 0.25]
    assert "Traceback" not in server.log.read_text()
