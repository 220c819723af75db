"""Bytes on a connection: framing, order, limits, and clients that misbehave."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time

import psutil
import pytest

BODY = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,2],"data":[%d,2]}]}'

EXPECTING = (
    b"POST /v2/models/id_fp32/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
)


def read_all(connection):
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def request(body=None, model="id_fp32", extra=b"", version=b"1.1", value=1):
    body = BODY % value if body is None else body
    return b"POST /v2/models/%b/infer HTTP/%b\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n%b" % (
        model.encode(),
        version,
        extra,
        len(body),
        body,
    )


def responses(data):
    """Split what came over a connection into (status line, headers, body)."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines[1:])
        length = int(headers.get(b"Content-Length", b"0"))
        found.append((lines[0], headers, data[:length]))
        data = data[length:]
    return found


def values(data):
    return [json.loads(body)["outputs"][0]["data"][0] for _, _, body in responses(data)]


def test_pipelined_requests_are_answered_in_order(server):
    data = server.talk(b"".join(request(value=number) for number in range(50)))
    assert values(data) == list(range(50))


def test_more_pipelined_requests_than_may_be_in_flight(server):
    data = server.talk(b"".join(request(value=number) for number in range(1000)))
    assert values(data) == list(range(1000))


def test_a_fast_answer_waits_for_the_slow_one_before_it(server):
    slow = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[7]}]}'
    data = server.talk(
        request(slow, "slow") + request(value=3) + b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    first, second, third = responses(data)
    assert json.loads(first[2])["model_name"] == "slow"
    assert json.loads(second[2])["model_name"] == "id_fp32"
    assert third[2] == b""


def test_requests_cut_at_any_byte(server):
    whole = request(value=5) + b"GET /v2/models/sum/ready HTTP/1.1\r\nHost: x\r\n\r\n" + request(value=6)
    for cut in range(1, len(whole), 7):
        with server.connect() as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(whole[:cut])
            time.sleep(0.002)
            connection.sendall(whole[cut:])
            connection.shutdown(socket.SHUT_WR)
            first, ready, last = responses(read_all(connection))
            assert (b'"data":[5.0,' in first[2], ready[0], b'"data":[6.0,' in last[2]) == (
                True,
                b"HTTP/1.1 200 OK",
                True,
            )


def test_known_headers_cut_before_their_end(server):
    one, two = request(value=5), request(value=6)
    assert values(server.talk(one)) == [5]  # the header is known from now on
    for cut in range(len(one), len(one) + two.find(b"\r\n\r\n") + 5):
        with server.connect() as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall((one + two)[:cut])
            time.sleep(0.01)
            connection.sendall((one + two)[cut:])
            connection.shutdown(socket.SHUT_WR)
            assert values(read_all(connection)) == [5, 6], cut


def test_chunked_bodies(server):
    body = BODY % 4
    head = b"POST /v2/models/id_fp32/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(
        b"%x;ext=1\r\n%b\r\n" % (len(body[i : i + 9]), body[i : i + 9]) for i in range(0, len(body), 9)
    )
    data = server.talk(head + chunks + b"0\r\nTrailer: 1\r\n\r\n" + request(value=9))
    assert values(data) == [4, 9]


def test_expect_100_continue(server):
    body = BODY % 4
    with server.connect() as connection:
        connection.sendall(EXPECTING % len(body))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        connection.shutdown(socket.SHUT_WR)
        assert values(read_all(connection)) == [4]


def test_expect_100_continue_behind_a_request_that_still_runs(server):
    body = BODY % 4
    slow = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[7]}]}'
    with server.connect() as connection, connection.makefile("rb") as stream:
        connection.sendall(request(slow, "slow") + EXPECTING % len(body))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += stream.read(1)
        ((_, headers, _),) = responses(head)
        first = stream.read(int(headers[b"Content-Length"]))
        assert json.loads(first)["outputs"][0]["data"] == [7]
        assert stream.read(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        connection.shutdown(socket.SHUT_WR)
        assert values(stream.read()) == [4]


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(server):
    with server.connect() as connection:
        connection.sendall(EXPECTING % 10**12)
        ((status, headers, body),) = responses(read_all(connection))
    assert status == b"HTTP/1.1 400 Bad Request"
    assert headers[b"Connection"] == b"close"
    assert b"request JSON size of 1000000000000 bytes exceeds the maximum allowed input size" in body


def test_connection_close_is_honoured(server):
    with server.connect() as connection:
        connection.sendall(request(extra=b"Connection: close\r\n") + request(value=8))
        ((_, headers, _),) = responses(read_all(connection))
    assert headers[b"Connection"] == b"close"


def test_http_1_0(server):
    with server.connect() as connection:
        connection.sendall(request(version=b"1.0"))
        ((_, headers, _),) = responses(read_all(connection))
        assert headers[b"Connection"] == b"close"
    with server.connect() as connection:
        connection.sendall(
            request(version=b"1.0", extra=b"Connection: keep-alive\r\n") + request(version=b"1.0")
        )
        first, second = responses(read_all(connection))
        assert (first[1][b"Connection"], second[1][b"Connection"]) == (b"keep-alive", b"close")


def test_head_gets_no_body(server):
    data = server.talk(
        b"HEAD /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\nGET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    assert data.startswith(b"HTTP/1.1 405 Not Allowed\r\n")
    assert data.count(b"HTTP/1.1") == 2
    assert b"{" not in data


def test_an_upgrade_is_not_taken_up(server):
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    data = server.talk(request(extra=upgrade, value=3) + request(value=4))
    assert values(data) == [3, 4]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"POST /v2 HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /v2 HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v2 HTTP/1.1\r\nbroken header\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_garbage_closes_the_connection_and_nothing_else(server, garbage):
    before = server.talk(request(value=1) + garbage)
    assert values(before)[:1] == [1]
    assert b"200 OK" not in server.talk(garbage)
    assert server.ask("GET", "/v2/health/live").status == 200


def test_a_header_without_end_is_refused(server):
    with server.connect() as connection:
        try:
            for _ in range(300):
                connection.sendall(b"GET /v2 HTTP/1.1\r\nX: " + b"a" * 1000 if _ == 0 else b"a" * 1000)
            answer = read_all(connection)
        except ConnectionError:
            answer = b"HTTP/1.1 431"
    assert answer.startswith(b"HTTP/1.1 431")


def test_too_many_header_fields_are_refused(server):
    fields = b"".join(b"X-%d: %b\r\n" % (number, b"v" * 100) for number in range(1000))
    data = server.talk(b"GET /v2 HTTP/1.1\r\n" + fields + b"\r\n")
    assert data.startswith(b"HTTP/1.1 431 ")


def test_too_many_chunks_are_refused(server):
    head = b"POST /v2/models/id_fp32/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head + b"1\r\n \r\n" * 65_537)
        assert b"exceeds maximum of 65536 non-empty chunks" in read_all(connection)


def test_a_client_that_goes_away_costs_nothing(server):
    slow = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[7]}]}'
    for data in (request(slow, "slow"), request()[:-5], request()[:20], b""):
        connection = server.connect()
        connection.sendall(data)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        connection.close()
    assert server.infer("slow", slow).status == 200


def test_answers_that_nobody_reads_do_not_pile_up(started, repository):
    repository.identity("wide", dims=(-1,), batch=0)
    server = started(repository, "--http-write-timeout-secs=1")
    numbers = ",".join(["0.1"] * 20_000)
    body = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[20000],"data":[%b]}]}' % numbers.encode()
    data = request(body, "wide")
    with server.connect() as connection:
        connection.settimeout(0.5)
        with pytest.raises((TimeoutError, ConnectionError)):
            connection.sendall(data * 500)
        assert server.ask("GET", "/v2/health/live").status == 200
        # The server drops the connection once the write time-out is over.
        client = connection.getsockname()
        process = psutil.Process(server.process.pid)
        deadline = time.monotonic() + 30
        while any(item.raddr == client for item in process.net_connections()):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_client_that_reads_slowly_gets_all(started, repository):
    repository.identity("wide", dims=(-1,), batch=0)
    server = started(repository, "--http-write-timeout-secs=2")
    tensor = bytes(24 << 20)
    head = (
        b"POST /v2/models/wide/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Inference-Header-Content-Length: 0\r\nContent-Length: %d\r\n\r\n"
    )
    with socket.socket() as connection:
        connection.settimeout(30)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(head % len(tensor) + tensor)
        received = 0
        begun = time.monotonic()
        while piece := connection.recv(1 << 16):
            received += len(piece)
            # Far longer than the time-out, in steps that are far shorter.
            time.sleep(0.03 if time.monotonic() - begun < 6 else 0)
    assert received > len(tensor)


def test_connections_that_stall_are_dropped(started, repository):
    repository.identity("m")
    server = started(repository, "--http-read-timeout-secs=1", "--http-idle-timeout-secs=1")
    for data in (b"GET /v2 HT", request()[:-3], b""):
        with server.connect() as connection:
            connection.sendall(data)
            assert connection.recv(100) == b""


def test_a_trickling_header_is_dropped(started, repository):
    repository.identity("m")
    server = started(repository, "--http-read-timeout-secs=1")
    with server.connect() as connection, pytest.raises(ConnectionError):
        trickle(connection, 15)


def trickle(connection, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection.sendall(b"a")
        time.sleep(0.05)


def test_more_connections_than_allowed(started, repository):
    repository.identity("m")
    server = started(repository, "--max-connections=3")
    held = [server.connect() for _ in range(3)]
    for connection in held:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    with server.connect() as extra:
        assert not answered(extra)
    held.pop().close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if server.ask("GET", "/v2/health/live").status == 200:
                break
        except OSError:
            time.sleep(0.05)
    else:
        pytest.fail("no connection was taken after one had been closed")
    for connection in held:
        connection.close()


def answered(connection):
    try:
        connection.sendall(request())
        return bool(connection.recv(10))
    except ConnectionError:
        return False


def test_limits_on_body_size(started, repository):
    repository.identity("m")
    server = started(repository, "--http-max-input-size=200", "--http-max-binary-size=100")
    body = BODY % 1 + b" " * 200
    assert "Use --http-max-input-size to increase the limit." in server.infer("m", body).error
    chunked = b"POST /v2/models/m/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n12c\r\n" + b" " * 300
    with server.connect() as connection:
        connection.sendall(chunked)
        assert b"exceeds the maximum allowed input size of 200 bytes" in read_all(connection)
    header = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]}'
    given = {"Inference-Header-Content-Length": str(len(header))}
    assert server.infer("m", header + bytes(8), given).status == 200
    assert "Use --http-max-binary-size" in server.infer("m", header + bytes(300), given).error
    long_header = header + b" " * 150
    answer = server.infer(
        "m", long_header + bytes(8), {"Inference-Header-Content-Length": str(len(long_header))}
    )
    assert "request JSON size" in answer.error


def test_the_bytes_held_at_a_time_are_bounded(started, repository):
    repository.echo("slow", delay_ms=400)
    server = started(repository, "--http-max-held-size=900")
    one = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[7]}]}' + b" " * 500
    with server.connect() as half, server.connect() as busy:
        half.sendall(request(one, "slow")[:-200])
        time.sleep(0.1)
        busy.sendall(request(one, "slow"))
        assert busy.recv(1000).startswith(b"HTTP/1.1 503 ")
    refused = b"the server holds too many request bytes"
    with server.connect() as first, server.connect() as second:
        first.sendall(request(one, "slow"))
        time.sleep(0.1)
        second.sendall(request(one, "slow"))
        assert refused in second.recv(1000)
        assert first.recv(1000).startswith(b"HTTP/1.1 200 ")
    # Everything has been let go of again.
    assert server.infer("slow", one).status == 200


@pytest.mark.parametrize("extra", [b"Connection: keep-alive\r\n", b"Accept-Encoding: identity\r\n"])
def test_common_headers_change_nothing(server, extra):
    assert values(server.talk(b"".join(request(extra=extra, value=n) for n in range(5)))) == list(range(5))


def test_a_known_header_with_an_encoding_is_still_compressed(server):
    data = server.talk(request(extra=b"Accept-Encoding: gzip\r\n") * 3)
    answers = responses(data)
    assert [json.loads(gzip.decompress(body))["model_name"] for _, _, body in answers] == ["id_fp32"] * 3


def test_many_clients_at_once(server):
    wrong = []

    def client(number):
        with server.connect() as connection:
            for step in range(30):
                value = number * 100 + step
                connection.sendall(request(value=value))
                data = b""
                while b"]}]}" not in data:
                    data += connection.recv(65536)
                if values(data) != [value]:
                    wrong.append(data)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
