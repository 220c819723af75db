"""TLS on the HTTP port."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import time

import pytest

from repobuild_serve.errors import StartError
from repobuild_serve.http.tls import server_context
from tests.serve.conftest import read_all

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="certificates are made with the openssl command")
BODY = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[%d]}]}'


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """A certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *(OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


@pytest.fixture(params=["", "uvloop"], ids=["uvloop", "asyncio"])
def tls(started, repository, pair, request):
    """Starts a server with TLS, on either event loop."""
    repository.echo("m")
    repository.repeat("repeat")

    def start(*options):
        return started(
            repository,
            f"--http-ssl-cert={pair[0]}",
            f"--http-ssl-key={pair[1]}",
            *options,
            without=request.param,
        )

    return start


def connect(server, pair, **versions):
    context = ssl.create_default_context(cafile=pair[0])
    for name, value in versions.items():
        setattr(context, name, value)
    return context.wrap_socket(server.connect(), server_hostname="127.0.0.1")


def served(server, pair, model):
    """Requests that a model has been done with."""
    with connect(server, pair) as connection:
        connection.sendall(b"GET /v2/models/%b/stats HTTP/1.1\r\nConnection: close\r\n\r\n" % model.encode())
        document = json.loads(read_all(connection).partition(b"\r\n\r\n")[2])
    return document["model_stats"][0]["inference_stats"]["success"]["count"]


def post(path, body, extra=b""):
    head = b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n"
    return head % (path.encode(), extra, len(body)) + body


def test_requests_and_streams(tls, pair):
    server = tls()
    with connect(server, pair) as connection:
        for value in (1, 2, 3):
            connection.sendall(post("/v2/models/m/infer", BODY % value))
            body = connection.recv(65536).partition(b"\r\n\r\n")[2]
            assert json.loads(body)["outputs"][0]["data"] == [value]
        # Larger than a TLS record, and than the server's write buffer.
        ask = b'{"IN":1,"times":200,"bytes":20000}'
        connection.sendall(post("/v2/models/repeat/generate_stream", ask, b"Connection: close\r\n"))
        data = read_all(connection)
    assert data.count(b"x" * 20000) == 200
    assert data.endswith(b"0\r\n\r\n")


def test_the_oldest_version(tls, pair):
    assert server_context(*pair).minimum_version is ssl.TLSVersion.TLSv1_2
    server = tls()
    with connect(server, pair, maximum_version=ssl.TLSVersion.TLSv1_2) as connection:
        assert connection.version() == "TLSv1.2"


def test_plain_http_is_not_spoken(tls):
    server = tls()
    with server.connect() as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in read_all(connection)
    assert server.ask("GET", "/metrics", port=server.ports["metrics"]).status == 200


def test_slow_and_half_open_clients_are_dropped(tls, pair):
    server = tls("--http-read-timeout-secs=1", "--http-idle-timeout-secs=1")
    with server.connect() as silent, connect(server, pair) as idle, connect(server, pair) as slow:
        slow.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: 10\r\n\r\n{")
        for connection in (silent, idle, slow):
            connection.settimeout(20)
            assert ended(connection)


def test_a_client_that_does_not_say_goodbye(tls, pair):
    server = tls()
    connection = connect(server, pair)
    connection.sendall(post("/v2/models/repeat/generate_stream", b'{"IN":1,"times":500,"bytes":20000}'))
    connection.recv(10)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.close()
    with connect(server, pair) as other:
        other.sendall(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
        assert other.recv(100).startswith(b"HTTP/1.1 200 OK")
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


def test_a_stop_with_open_connections(tls, pair):
    server = tls()
    with connect(server, pair) as connection:
        connection.sendall(post("/v2/models/m/infer", BODY % 1))
        assert b"200 OK" in connection.recv(65536)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 25


@pytest.mark.parametrize("option", ["--http-ssl-cert", "--http-ssl-key"])
def test_both_files_are_needed(launch, repository, pair, option):
    repository.echo("m")
    server = launch(repository.path, f"{option}={pair[0]}")
    assert server.process.wait(60) == 2
    assert "error[tls-incomplete]" in server.log.read_text()


def test_files_that_cannot_be_used(pair, tmp_path):
    certificate, key = pair
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    for first, second in ((bad, key), (certificate, bad), (key, certificate), (tmp_path / "none", key)):
        with pytest.raises(StartError) as caught:
            server_context(first, second)
        assert caught.value.reference == "tls-files-unusable"


def test_an_encrypted_key_is_refused_without_asking(pair, tmp_path):
    locked = tmp_path / "locked.pem"
    subprocess.run(
        [OPENSSL, "ec", "-in", pair[1], "-aes256", "-passout", "pass:secret", "-out", locked],
        check=True,
        capture_output=True,
    )
    with pytest.raises(StartError) as caught:
        server_context(pair[0], locked)
    assert any("encrypted" in line for line in caught.value.evidence)


def ended(connection):
    try:
        return read_all(connection) == b""
    except (ConnectionResetError, ssl.SSLError):
        return True


@pytest.mark.parametrize("goodbye", [True, False], ids=["goodbye", "gone"])
def test_a_stream_whose_client_has_left_does_not_fill_the_log(tls, pair, goodbye):
    server = tls()
    ask = b'{"IN":[1,2],"times":10000}'
    connection = connect(server, pair)
    connection.sendall(post("/v2/models/repeat/generate_stream", ask))
    connection.recv(10)
    if goodbye:
        # What is still sent cannot be read any more, which some versions of the ssl module tell of.
        with contextlib.suppress(OSError):
            connection.unwrap()
    connection.close()
    deadline = time.monotonic() + 20
    while not served(server, pair, "repeat"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    lines = server.log.read_text().splitlines()
    # The loop of asyncio itself tells of some writes before it tells that the connection is lost.
    assert len(lines) < 2000, lines[-3:]
