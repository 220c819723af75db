"""Typed access to members of a JSON document, with Triton's error texts (E8, E9 of its contract)."""

from __future__ import annotations

from typing import Any

from repobuild_serve.errors import Code, RequestError

_WANTS: dict[str, Any] = {
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "unsigned-integer": lambda value: type(value) is int and 0 <= value < 1 << 64,
    "signed-integer": lambda value: type(value) is int and -(1 << 63) <= value < 1 << 63,
    "double": lambda value: type(value) in (int, float),
}


def accepts(value: Any, want: str) -> bool:
    """Whether a JSON value is of the kind ``want``."""
    return bool(_WANTS[want](value))


def wrong_kind(key: str, want: str, context: str = "") -> RequestError:
    """The error for a member that is not of the kind it must be."""
    context = context or f"Unable to parse '{key}'"
    missed = "number" if want == "double" else want
    return RequestError(f"{context}: attempt to access JSON non-{missed} as {want}", Code.INTERNAL)


def member(document: Any, key: str, want: str) -> Any:
    """The member ``key``, which must be there.

    Raises:
        RequestError: It is missing or of another kind.
    """
    if not isinstance(document, dict):
        raise RequestError(
            f"Unable to parse '{key}': attempt to access non-existing object member '{key}'", Code.INTERNAL
        )
    if key not in document:
        raise RequestError(
            f"Unable to parse '{key}': attempt to access non-existing object member '{key}'", Code.INTERNAL
        )
    return checked(document[key], key, want)


def optional(document: Any, key: str, want: str, default: Any) -> Any:
    """The member ``key``, or ``default`` if it is missing.

    Raises:
        RequestError: It is of another kind.
    """
    return checked(document[key], key, want) if key in document else default


def checked(value: Any, key: str, want: str) -> Any:
    """``value`` if it is of the kind ``want``.

    Raises:
        RequestError: It is not.
    """
    if not _WANTS[want](value):
        raise wrong_kind(key, want)
    return value
