"""Compressed bodies, both ways (Triton contract, inference request headers)."""

from __future__ import annotations

import re
import zlib

from repobuild_serve.errors import Code, RequestError

_WINDOW = {b"gzip": 31, b"deflate": 15}
_EITHER = 47
_CODINGS = frozenset({b"identity", *_WINDOW})
_NUMBER = re.compile(rb"\s*(\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+))")
_LEVEL = 1


def decompress(body: bytes, encoding: bytes, limit: int, *, legacy: bool = False) -> bytes:
    """The body as it was before compression.

    Args:
        body: As received.
        encoding: Value of ``Content-Encoding``.
        limit: Largest decompressed size in bytes; no more than that is ever produced.
        legacy: Whether an empty value counts as unknown, corrupt data as an empty body, of data that are cut
            off what is there, and what follows the data is passed over, as with Triton 24.10, in place of an
            error.

    Raises:
        RequestError: The encoding is unknown, the data corrupt, cut off or followed by more, or too large.
    """
    if encoding == b"identity" or (not encoding and not legacy):
        return body
    if encoding not in _WINDOW:
        raise RequestError("Unsupported compression type", Code.UNSUPPORTED, plain=True)
    # Either container is taken for the other.
    inflater = zlib.decompressobj(_EITHER)
    try:
        result = inflater.decompress(body, limit + 1)
    except zlib.error:
        return _corrupt(encoding, b"", legacy=legacy)
    if len(result) > limit:
        raise RequestError(
            f"Decompressed data size exceeds the maximum allowed value of {limit} bytes. "
            "Use --http-max-input-size to increase the limit."
        )
    if not inflater.eof:
        return _corrupt(encoding, result, legacy=legacy)
    if inflater.unused_data and not legacy:
        # A second gzip member, say: the tensor would lack its end, and nobody be told.
        raise RequestError(
            f"request body has {len(inflater.unused_data)} bytes behind the end of its "
            f"{encoding.decode('ascii')} data",
            plain=True,
        )
    return result


def _corrupt(coding: bytes, read: bytes, *, legacy: bool) -> bytes:
    # An empty body is a request with an empty tensor for a model with variable dims, which would be served.
    if legacy:
        return read
    raise RequestError(f"request body is not complete {coding.decode('ascii')} data", plain=True)


def chosen_encoding(accept: bytes) -> bytes:
    """The encoding for a response: highest q of identity, gzip and deflate, the first named on a tie."""
    best, best_q = b"identity", 0.0
    for part in accept.split(b","):
        coding, _, weight = part.lstrip(b" ").partition(b";q=")
        if coding not in _CODINGS:
            continue
        q = _quality(weight)
        if q > best_q:
            best, best_q = coding, q
    return b"" if best == b"identity" else best


def compress(body: bytes, encoding: bytes) -> bytes:
    """The body in the given encoding, ``gzip`` or ``deflate``."""
    deflater = zlib.compressobj(_LEVEL, wbits=_WINDOW[encoding])
    return deflater.compress(body) + deflater.flush()


def _quality(weight: bytes) -> float:
    if not weight:
        return 1.0
    found = _NUMBER.match(weight)
    return float(found[1]) if found else 0.0
