"""Request headers that become request parameters (Triton contract, parameters)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from repobuild_serve.core.ticket import Scalar
from repobuild_serve.errors import RequestError, StartError

_RESERVED = frozenset(
    {
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "headers",
        "binary_data_output",
    }
)
_CASE_SENSITIVE = "(?-i)"


class HeaderForwarding:
    """Turns the headers whose names match a pattern into parameters.

    Args:
        pattern: Regular expression, looked for anywhere in a name, in either case unless it starts with
            ``(?-i)``; empty forwards nothing.
        legacy: Whether headers may be called like parameters with a meaning of their own (V12).

    Raises:
        StartError: The pattern is no regular expression.
    """

    def __init__(self, pattern: str = "", *, legacy: bool = False) -> None:
        self._legacy = legacy
        self._pattern: re.Pattern[str] | None = None
        if not pattern:
            return
        flags = re.IGNORECASE
        if pattern.startswith(_CASE_SENSITIVE):
            pattern, flags = pattern.removeprefix(_CASE_SENSITIVE), re.NOFLAG
        try:
            self._pattern = re.compile(pattern, flags)
        except re.error as exc:
            raise StartError(
                "header-pattern-unusable",
                f"the header forward pattern is no regular expression: {pattern}",
                evidence=(str(exc),),
                hint="give --http-header-forward-pattern a regular expression",
                exit_code=2,
            ) from exc

    def parameters(self, fields: Sequence[tuple[bytes, bytes]]) -> Mapping[str, Scalar]:
        """The parameters that the header fields of a request make, by name as sent.

        Raises:
            RequestError: A header is called like a reserved parameter.
        """
        if self._pattern is None:
            return {}
        found: dict[str, Scalar] = {}
        for raw_name, value in fields:
            name = raw_name.decode("latin-1")
            if self._pattern.search(name) is None:
                continue
            if not self._legacy and (name in _RESERVED or name.startswith("triton_")):
                raise RequestError(f"Header '{name}' is reserved for Triton usage and cannot be forwarded.")
            found[name] = value.decode("latin-1")
        return found
