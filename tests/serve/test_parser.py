"""The HTTP parser: the same requests wherever the bytes are cut, and bounds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from repobuild_serve.http.budget import Budget
from repobuild_serve.http.limits import Limits
from repobuild_serve.http.parser import RequestParser

LIMITS = Limits(header_size=400, chunks=20)


def limit(target, headers):
    return 1000, "too large: {size}"


def parse(data, cuts=()):
    parser = RequestParser(LIMITS, limit, Budget(10_000))
    found = []
    start = 0
    for cut in [*sorted(cuts), len(data)]:
        found += parser.feed(data[start:cut])
        start = cut
    return [(r.method, r.target, r.headers, r.body, r.keep_alive) for r in found], parser


PLAIN = st.tuples(st.sampled_from([b"POST", b"PUT"]), st.binary(max_size=50)).map(
    lambda item: b"%b /x HTTP/1.1\r\nA: b\r\nContent-Length: %d\r\n\r\n%b" % (item[0], len(item[1]), item[1])
)
UPGRADE = st.binary(max_size=50).map(
    lambda body: (
        b"POST /u HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )
)
CHUNKED = st.lists(st.binary(min_size=1, max_size=9), max_size=5).map(
    lambda parts: (
        b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        + b"0\r\n\r\n"
    )
)
GET = st.just(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")


@given(st.lists(PLAIN | CHUNKED | GET | UPGRADE, max_size=5).map(b"".join), st.data())
@settings(max_examples=400, deadline=None)
def test_requests_are_the_same_wherever_they_are_cut(data, draw):
    cuts = draw.draw(st.lists(st.integers(0, len(data)), max_size=6))
    whole, parser = parse(data)
    assert parser.refused is None
    assert parser.idle
    assert len(whole) == data.count(b" HTTP/1.1\r\n")
    assert parse(data, cuts)[0] == whole


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
@settings(max_examples=300)
def test_any_bytes(data, cuts):
    parse(data, [cut for cut in cuts if cut <= len(data)])


def test_a_head_is_measured_without_the_requests_before_it():
    data = b"GET /v2 HTTP/1.1\r\n\r\n" * 100
    found, parser = parse(data, [5, len(data) - 5])
    assert parser.refused is None
    assert len(found) == 100


def test_bounds():
    for data, status in (
        (b"GET /" + b"a" * 500, 0),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 500 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 999999999999999999\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + bytes(1001), 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 21, 400),
        (b"nonsense\r\n\r\n", 0),
    ):
        parser = parse(data)[1]
        if status:
            assert parser.refused is not None
            assert parser.refused.status == status
        else:
            more = parse(data, range(0, len(data), 50))[1]
            assert more.refused is not None
