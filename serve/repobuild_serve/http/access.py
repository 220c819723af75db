"""Who may ask for what: restricted groups of routes, and a token for all of them."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repobuild_serve.errors import StartError
from repobuild_serve.http.parser import Request
from repobuild_serve.http.replies import JSON, error_reply
from repobuild_serve.http.routing import Api

_OPEN = frozenset({b"/v2/health/live", b"/v2/health/ready"})
_CHALLENGE = b"WWW-Authenticate: Bearer\r\n"
_SCHEME = b"bearer"
_TOKEN = re.compile(rb"[\x21-\x7e]+")
_MOST_TOKEN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Restriction:
    """A header that a group of routes asks for."""

    header: str
    value: str


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of a listener.

    Attributes:
        restrictions: The header that each restricted group asks for.
        token: What an ``Authorization: Bearer`` header must carry; empty asks for none.
        token_for_health: Whether the two routes of server health ask for it too.
    """

    restrictions: Mapping[Api, Restriction] = field(default_factory=dict)
    token: bytes = b""
    token_for_health: bool = False

    def knows(self, target: bytes, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request brings the token, or needs none."""
        if not self.token or (not self.token_for_health and target.partition(b"?")[0] in _OPEN):
            return True
        scheme, _, token = headers.get(b"authorization", b"").strip().partition(b" ")
        return scheme.lower() == _SCHEME and hmac.compare_digest(token.strip(), self.token)

    def stranger(self, request: Request) -> bytes | None:
        """The answer to a request without the token that it needs; None if it is let through."""
        if self.knows(request.target, request.headers):
            return None
        return error_reply(401, "This server asks for a bearer token", JSON, _CHALLENGE)

    def restricted(self, request: Request, api: Api) -> bytes | None:
        """The answer to a request without the header that its route asks for; None if it is let through."""
        rule = self.restrictions.get(api)
        if rule is None:
            return None
        given = request.headers.get(rule.header.lower().encode("latin-1"))
        if given is not None and hmac.compare_digest(given, rule.value.encode("utf-8")):
            return None
        return error_reply(403, f"This API is restricted, expecting header '{rule.header}'")


def read_restrictions(texts: Iterable[str]) -> dict[Api, Restriction]:
    """Read ``--http-restricted-api`` options, each ``name,name:header=value``.

    Raises:
        StartError: One is malformed, names an unknown group, or a group that another one names too.
    """
    found: dict[Api, Restriction] = {}
    for text in texts:
        names, colon, rule = text.partition(":")
        header, equals, value = rule.partition("=")
        if not (names and colon and header and equals and value):
            raise _bad(f"'{text}' is not of the form <api>,<api>:<header>=<value>")
        for name in names.split(","):
            if name not in {api.value for api in Api}:
                raise _bad(f"unknown restricted api '{name}'")
            if Api(name) in found:
                raise _bad(f"restricted api '{name}' can not be specified in multiple config groups")
            found[Api(name)] = Restriction(header, value)
    return found


def read_token(path: Path) -> bytes:
    """Read the bearer token from a file.

    Raises:
        StartError: The file cannot be read, or holds no single word of visible ASCII.
    """
    try:
        with path.open("rb") as file:
            token = file.read(_MOST_TOKEN_BYTES + 1).strip()
    except OSError as exc:
        raise StartError(
            "token-file-unreadable",
            f"the bearer token file cannot be read: {path}",
            evidence=(str(exc),),
            hint="name a file that holds the token and that this user may read",
            exit_code=7,
        ) from exc
    if len(token) > _MOST_TOKEN_BYTES or _TOKEN.fullmatch(token) is None:
        raise StartError(
            "token-unusable",
            f"the bearer token file holds no usable token: {path}",
            hint=f"write one word of visible ASCII characters into it, at most {_MOST_TOKEN_BYTES} bytes",
            exit_code=2,
        )
    return token


def _bad(text: str) -> StartError:
    return StartError(
        "restricted-api-unusable",
        text,
        hint="known names: " + ", ".join(api.value for api in Api),
        exit_code=2,
    )
