"""Restricted APIs, bearer tokens, forwarded headers, log settings, shared memory and --compat."""

from __future__ import annotations

import json
import re

import pytest

from repobuild_serve.errors import RequestError, StartError
from repobuild_serve.http.access import Access, Restriction, read_restrictions, read_token
from repobuild_serve.http.forwarding import HeaderForwarding
from repobuild_serve.http.parser import Request
from repobuild_serve.http.routing import Api
from tests.serve.conftest import read_all

ROUTES = {
    "health": [("GET", "/v2/health/live"), ("GET", "/v2/health/ready"), ("GET", "/v2/models/m/ready")],
    "metadata": [("GET", "/v2"), ("GET", "/v2/models/m")],
    "inference": [
        ("POST", "/v2/models/m/infer"),
        ("GET", "/v2/models/m/infer"),
        ("POST", "/v2/models/m/generate"),
        ("POST", "/v2/models/m/generate_stream"),
    ],
    "shared-memory": [("GET", "/v2/systemsharedmemory/status"), ("POST", "/v2/cudasharedmemory/unregister")],
    "model-config": [("GET", "/v2/models/m/config")],
    "model-repository": [("POST", "/v2/repository/index"), ("POST", "/v2/repository/models/m/load")],
    "statistics": [("GET", "/v2/models/stats"), ("GET", "/v2/models/m/stats")],
    "trace": [("GET", "/v2/trace/setting"), ("GET", "/v2/models/m/trace/setting")],
    "logging": [("GET", "/v2/logging"), ("POST", "/v2/logging")],
}
SECRET = "s3cret"
BEARER = {"Authorization": f"Bearer {SECRET}"}


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(SECRET + "\n")
    return path


def infer_bytes(value, extra=b""):
    body = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[%d]}]}' % value
    return b"POST /v2/models/m/infer HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (extra, len(body), body)


# restricted APIs


@pytest.mark.parametrize("group", ROUTES)
def test_a_restricted_group_asks_for_its_header(started, repository, group):
    repository.echo("m")
    server = started(repository, f"--http-restricted-api={group}:K1=v1")
    for name, routes in ROUTES.items():
        for method, path in routes:
            bare = server.ask(method, path)
            if name != group:
                assert bare.status != 403, path
                continue
            assert bare.status == 403, path
            assert bare.error == "This API is restricted, expecting header 'K1'"
            assert server.ask(method, path, headers={"k1": "V1"}).status == 403
            assert server.ask(method, path, headers={"k1": "v1"}).status != 403


def test_several_groups_have_headers_of_their_own(started, repository, tensor):
    repository.echo("m")
    server = started(
        repository, "--http-restricted-api=inference,health:a=1", "--http-restricted-api=metadata:b=2=3"
    )
    body = {"inputs": [tensor([[1]])]}
    assert server.infer("m", body).status == 403
    assert server.infer("m", body, {"a": "1"}).status == 200
    assert server.ask("GET", "/v2/health/live", headers={"a": "1"}).status == 200
    assert server.ask("GET", "/v2", headers={"a": "1"}).status == 403
    assert server.ask("GET", "/v2", headers={"b": "2=3"}).status == 200


def test_a_header_that_was_met_before_does_not_open_a_restricted_route(started, repository):
    repository.echo("m")
    server = started(repository, "--http-restricted-api=inference:key=1")
    with server.connect() as connection:
        for _ in range(3):
            connection.sendall(infer_bytes(1, b"key: 1\r\n"))
            assert b" 200 OK" in connection.recv(65536)
            connection.sendall(infer_bytes(1))
            assert b" 403 Forbidden" in connection.recv(65536)


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        (["nope:a=1"], "unknown restricted api 'nope'"),
        (["health:a=1", "health:b=1"], "'health' can not be specified in multiple config groups"),
        (["health"], "is not of the form"),
        (["health:a"], "is not of the form"),
        (["health:=1"], "is not of the form"),
        (["health:a="], "is not of the form"),
        (["health,:a=1"], "unknown restricted api ''"),
    ],
    ids=["unknown", "twice", "no-rule", "no-value", "no-header", "empty-value", "empty-name"],
)
def test_malformed_restrictions(texts, error):
    with pytest.raises(StartError) as caught:
        read_restrictions(texts)
    assert error in caught.value.text
    assert caught.value.exit_code == 2


def test_restrictions_are_read():
    assert read_restrictions(["health,trace:K=v:w=x"]) == {
        Api.HEALTH: Restriction("K", "v:w=x"),
        Api.TRACE: Restriction("K", "v:w=x"),
    }


# bearer token


def test_every_route_asks_for_the_token(started, repository, token_file):
    repository.echo("m")
    server = started(repository, f"--http-bearer-token-file={token_file}")
    open_routes = {"/v2/health/live", "/v2/health/ready"}
    everything = [route for routes in ROUTES.values() for route in routes] + [
        ("GET", "/nowhere"),
        ("PUT", "/v2"),
    ]
    for method, path in everything:
        response = server.ask(method, path)
        if path in open_routes:
            assert response.status == 200
            continue
        assert response.status == 401, path
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert response.error == "This server asks for a bearer token"
        assert server.ask(method, path, headers=BEARER).status not in {401, 403}, path


def test_the_token_may_guard_health_too(started, repository, token_file):
    repository.echo("m")
    server = started(repository, f"--http-bearer-token-file={token_file}", "--http-bearer-token-health")
    assert server.ask("GET", "/v2/health/ready").status == 401
    assert server.ask("GET", "/v2/health/ready", headers=BEARER).status == 200


def test_a_header_that_was_met_before_does_not_stand_for_the_token(started, repository, token_file):
    repository.echo("m")
    server = started(repository, f"--http-bearer-token-file={token_file}")
    right = infer_bytes(1, b"Authorization: Bearer s3cret\r\n")
    wrong = infer_bytes(1, b"Authorization: Bearer s3creT\r\n")
    with server.connect() as connection:
        for _ in range(3):
            for data, status in (
                (right, b" 200 OK"),
                (wrong, b" 401 Unauthorized"),
                (infer_bytes(1), b" 401 "),
            ):
                connection.sendall(data)
                assert status in connection.recv(65536)


def test_strangers_may_not_send_large_bodies(started, repository, token_file):
    repository.echo("m")
    server = started(repository, f"--http-bearer-token-file={token_file}")
    with server.connect() as connection:
        connection.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n")
        data = read_all(connection)
    assert data.startswith(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n")


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (b"Bearer s3cret", True),
        (b"bearer   s3cret ", True),
        (b"Bearer s3cret2", False),
        (b"Bearer s3cre", False),
        (b"Basic s3cret", False),
        (b"s3cret", False),
        (b"Bearer", False),
        (b"", False),
        (b"Bearer \xff", False),
    ],
)
def test_what_counts_as_the_token(value, known):
    access = Access(token=b"s3cret")
    assert access.knows(b"/v2", {b"authorization": value}) is known
    assert (access.stranger(Request(target=b"/v2", headers={b"authorization": value})) is None) is known


def test_without_a_token_everybody_is_known():
    assert Access().knows(b"/v2", {})


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", "\u00e9".encode(), b"x" * 5000])
def test_unusable_token_files(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(StartError, match="no usable token") as caught:
        read_token(path)
    assert caught.value.exit_code == 2


def test_a_token_file_that_is_not_there(launch, repository, tmp_path):
    repository.echo("m")
    server = launch(repository.path, f"--http-bearer-token-file={tmp_path / 'none'}")
    assert server.process.wait(60) == 7
    assert "error[token-file-unreadable]" in server.log.read_text()


# forwarded headers


def seen(server, headers, body=None):
    response = server.infer("m", body or {"inputs": [{**INPUT}], "parameters": {"act": "with_last"}}, headers)
    if response.status != 200:
        return response.error
    return response.json["outputs"][1]["data"][0]


INPUT = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}


def test_matching_headers_become_parameters(started, repository):
    repository.repeat("m", decoupled=False)
    server = started(repository, "--http-header-forward-pattern=my_.*")
    # Twice, as the second request takes the short way.
    for _ in range(2):
        given = {"MY_Header": "A b", "Other": "x", "x-my_": "5"}
        assert seen(server, given) == "act='with_last',MY_Header='A b',x-my_='5'"
    assert seen(server, {}) == "act='with_last'"
    binary = json.dumps(
        {
            "inputs": [{**INPUT, "parameters": {"binary_data_size": 4}}],
            "parameters": {"act": "with_last"},
        }
    ).replace('"data": [1], ', "")
    for value in ("1", "2", "2"):
        headers = {"my_x": value, "Inference-Header-Content-Length": str(len(binary))}
        assert seen(server, headers, binary.encode() + bytes(4)) == f"act='with_last',my_x='{value}'"


def test_reserved_names_are_not_forwarded(started, repository):
    repository.repeat("m", decoupled=False)
    server = started(repository, "--http-header-forward-pattern=(prio|triton)")
    for _ in range(2):
        expected = "Header 'priority' is reserved for Triton usage and cannot be forwarded."
        assert seen(server, {"priority": "5"}) == expected
    assert "Header 'triton_x' is reserved" in seen(server, {"triton_x": "5"})


def test_legacy_forwards_reserved_names(started, repository):
    repository.repeat("m", decoupled=False)
    server = started(repository, "--http-header-forward-pattern=prio", "--compat=24.10")
    assert seen(server, {"priority": "5"}) == "act='with_last',priority='5'"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", []),
        ("a.*", ["A-b", "xa", "Accept"]),
        ("^a", ["A-b", "Accept"]),
        ("(?-i)a", ["xa"]),
        (".*", ["A-b", "xa", "Accept", "Host"]),
    ],
    ids=["none", "anywhere", "start", "case", "all"],
)
def test_which_headers_match(pattern, names):
    fields = [(b"A-b", b"1"), (b"xa", b"2"), (b"Accept", b"3"), (b"Host", b"\xe9")]
    assert list(HeaderForwarding(pattern).parameters(fields)) == names


def test_reserved_headers_raise():
    with pytest.raises(RequestError, match="Header 'timeout' is reserved"):
        HeaderForwarding("t").parameters([(b"timeout", b"1")])
    assert HeaderForwarding("t", legacy=True).parameters([(b"timeout", b"1")]) == {"timeout": "1"}


def test_a_pattern_that_is_none(launch, repository):
    repository.echo("m")
    server = launch(repository.path, "--http-header-forward-pattern=(")
    assert server.process.wait(60) == 2
    assert "error[header-pattern-unusable]" in server.log.read_text()


# logging

SETTINGS = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


def test_log_settings_are_told_and_changed(started, repository):
    repository.echo("m")
    server = started(repository)
    assert server.ask("GET", "/v2/logging").json == SETTINGS
    assert list(server.ask("GET", "/v2/logging").json) == list(SETTINGS)
    for change in (
        {"log_info": False, "log_verbose_level": 3, "zz": 1},
        {"log_info": None, "log_format": "ISO8601", "log_file": None},
    ):
        server.ask("POST", "/v2/logging", change)
    expected = {**SETTINGS, "log_info": False, "log_verbose_level": 3, "log_format": "ISO8601"}
    assert server.ask("POST", "/v2/logging", []).json == expected
    assert server.ask("PUT", "/v2/logging").status == 405


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        pytest.param(
            {"log_file": "x"}, 501, "log file location can not be updated through network protocol", id="file"
        ),
        pytest.param({"log_format": "zz"}, 503, "invalid argument for --log_format, got: zz", id="format"),
        pytest.param({"log_format": 1}, 500, "attempt to access JSON non-string as string", id="format-kind"),
        pytest.param({"log_info": 1}, 500, "attempt to access JSON non-boolean as boolean", id="info"),
        pytest.param(
            {"log_warning": "x"}, 500, "attempt to access JSON non-boolean as boolean", id="warning"
        ),
        pytest.param(
            {"log_verbose_level": -1},
            500,
            "attempt to access JSON non-unsigned-integer as unsigned-integer",
            id="verbose",
        ),
        pytest.param(
            b"", 500, "failed to parse the request JSON buffer: The document is empty. at 0", id="empty"
        ),
        pytest.param({"log_info": False, "log_format": "zz"}, 503, "invalid argument", id="none-or-all"),
    ],
)
def test_log_settings_that_cannot_be(server, body, status, error):
    response = server.ask("POST", "/v2/logging", body)
    assert response.status == status
    assert response.error.startswith(error)
    assert server.ask("GET", "/v2/logging").json == SETTINGS


def test_log_settings_have_an_effect(started, repository):
    repository.echo("m")
    server = started(repository)
    fail = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [-1]}]}

    def logged(**settings):
        assert server.ask("POST", "/v2/logging", settings).status == 200
        before = server.log.stat().st_size
        assert server.infer("m", fail).status == 500
        return server.log.read_bytes()[before:].decode()

    assert re.search(r"^\S+ \S+ E model m: instance m_0_0 failed", logged(), re.MULTILINE)
    assert logged(log_error=False) == ""
    line = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ E \d+ \w+\.py:\d+\] model m: instance"
    assert re.search(line, logged(log_error=True, log_format="ISO8601"), re.MULTILINE)


def test_log_options(started, repository):
    repository.echo("m")
    server = started(repository, "--log-info=false", "--log-format=ISO8601", "--log-verbose=1")
    settings = server.ask("GET", "/v2/logging").json
    assert settings == {**SETTINGS, "log_info": False, "log_verbose_level": 1, "log_format": "ISO8601"}
    assert " I " not in server.log.read_text()


# shared memory and profiles


def test_shared_memory_is_off(server):
    text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
    for kind in ("system", "cuda"):
        for action in ("region/r/register", "unregister", "region/r/unregister"):
            response = server.ask("POST", f"/v2/{kind}sharedmemory/{action}", {})
            assert response.status == 501
            assert response.error == text
        assert server.ask("GET", f"/v2/{kind}sharedmemory/status").json == []
        response = server.ask("GET", f"/v2/{kind}sharedmemory/region/r/status")
        assert response.status == 404
        assert response.error == f"Unable to find {kind} shared memory region: 'r'"


def test_client_shared_memory_is_refused(launch, repository):
    repository.echo("m")
    server = launch(repository.path, "--allow-client-shm=true")
    assert server.process.wait(60) == 2
    assert "error[client-shm-unsupported]" in server.log.read_text()


def test_legacy_answers(started, repository, tensor):
    repository.echo("m")
    server = started(repository, "--compat", "24.10", "--allow-client-shm=false")
    assert server.ask("GET", "/v2").json["version"] == "2.51.0"
    system, cuda = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
    assert server.ask("GET", f"{system}/status").json == []
    assert server.ask("POST", f"{system}/unregister").status == 200
    cases = [
        (
            f"{system}/region/r/register",
            {"byte_size": 8},
            400,
            "Shared memory register request has no 'key' field",
        ),
        (
            f"{system}/region/r/register",
            {"key": "/k"},
            400,
            "Shared memory register request has no 'byte_size' field",
        ),
        (f"{system}/region/r/register", {"key": 1}, 500, "attempt to access JSON non-string as string"),
        (
            f"{system}/region/r/register",
            {"key": "/no_such", "byte_size": 8},
            500,
            "Unable to open shared memory region: '/no_such'",
        ),
        (
            f"{system}/register",
            {},
            400,
            "'region name' is necessary to register system shared memory region",
        ),
        (
            f"{cuda}/region/c/register",
            {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 8},
            400,
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t",
        ),
    ]
    for path, body, status, error in cases:
        response = server.ask("POST", path, body)
        assert (response.status, response.error) == (status, error)
    body = {"inputs": [tensor([[1]])], "outputs": [{"name": "OUT"}, {"name": "OUT"}]}
    assert len(server.infer("m", body).json["outputs"]) == 1
    text = "Unable to parse 'data': Shape does not match true shape of 'data' field"
    assert server.infer("m", {"inputs": [tensor([], [1, 1])]}).error == text
    raw = server.infer("m", bytes(4), {"Inference-Header-Content-Length": "abc"})
    assert raw.headers["Inference-Header-Content-Length"]


def test_current_refuses_what_legacy_let_through(server, tensor):
    body = {"inputs": [tensor([[1]])], "outputs": [{"name": "OUT"}, {"name": "OUT"}]}
    assert server.infer("echo", body).error == "output 'OUT' already exists in request"
    raw = server.infer("echo", bytes(4), {"Inference-Header-Content-Length": "abc"})
    assert raw.error == "Unable to parse Inference-Header-Content-Length, got: abc"
    large = server.infer("echo", bytes(4), {"Inference-Header-Content-Length": "9" * 5000})
    assert large.status == 400
    assert "value is out of range [ -2147483648, 2147483647 ], got: 999" in large.error
    assert server.infer("echo", bytes(4), {"Inference-Header-Content-Length": "0abc"}).status == 200


def test_unknown_profiles_are_refused(launch, repository):
    repository.echo("m")
    server = launch(repository.path, "--compat=23.01")
    assert server.process.wait(60) == 2
    assert "'23.01' is not one of 'current', '24.10'" in server.log.read_text()
