"""Compressed bodies, both ways (Triton contract, inference request headers)."""

from __future__ import annotations

import zlib

from repobuild_serve.errors import Code, RequestError

_WINDOW = {b"gzip": 31, b"deflate": 15}
_LEVEL = 1


def decompress(body: bytes, encoding: bytes, limit: int, *, legacy: bool = False) -> bytes:
    """The body as it was before compression.

    Args:
        body: As received.
        encoding: Value of ``Content-Encoding``.
        limit: Largest decompressed size in bytes; no more than that is ever produced.
        legacy: Whether corrupt data counts as an empty body, as with Triton, in place of an error.

    Raises:
        RequestError: The encoding is unknown, the data corrupt or cut off, or the result too large.
    """
    coding = encoding.strip().lower()
    if coding in {b"", b"identity"}:
        return body
    if coding not in _WINDOW:
        raise RequestError("Unsupported compression type", Code.UNSUPPORTED, plain=True)
    inflater = zlib.decompressobj(_WINDOW[coding])
    try:
        result = inflater.decompress(body, limit + 1)
        complete = inflater.eof or not inflater.unconsumed_tail
    except zlib.error:
        return _corrupt(coding, legacy=legacy)
    if len(result) > limit:
        raise RequestError(
            f"Decompressed data size exceeds the maximum allowed value of {limit} bytes. "
            "Use --http-max-input-size to increase the limit."
        )
    return result if complete and inflater.eof else _corrupt(coding, legacy=legacy)


def _corrupt(coding: bytes, *, legacy: bool) -> bytes:
    # An empty body is a request with an empty tensor for a model with variable dims, which would be served.
    if legacy:
        return b""
    raise RequestError(f"request body is not complete {coding.decode('ascii')} data", plain=True)


def chosen_encoding(accept: bytes) -> bytes:
    """The encoding for a response: highest q of identity, gzip and deflate, the first named on a tie."""
    best, best_q = b"", 0.0
    for part in accept.split(b","):
        name, _, parameters = part.strip().partition(b";")
        coding = name.strip().lower()
        if coding not in {b"identity", b"gzip", b"deflate"}:
            continue
        q = _quality(parameters)
        if q > best_q:
            best, best_q = coding, q
    return b"" if best == b"identity" else best


def compress(body: bytes, encoding: bytes) -> bytes:
    """The body in the given encoding, ``gzip`` or ``deflate``."""
    deflater = zlib.compressobj(_LEVEL, wbits=_WINDOW[encoding])
    return deflater.compress(body) + deflater.flush()


def _quality(parameters: bytes) -> float:
    for parameter in parameters.split(b";"):
        key, _, value = parameter.strip().partition(b"=")
        if key.strip().lower() == b"q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
