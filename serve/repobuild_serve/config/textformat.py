r"""The protobuf text format as protobuf's C++ parser reads it, which is Triton's (io/tokenizer.cc).

Python's parser takes tokens that C++ refuses (``+1``, ``0b1``, ``1_0``, ``"\q"``), and refuses some that C++
takes (``- 1``, ``"\ud83d\ude00"``, ``"\377"``, a boolean or enum ``0x1`` or ``01``). :func:`rewritten` makes
of a text one that Python's parser reads as C++ reads the original. Lines stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\n\v\f\r]+|\#[^\n]*)+)
    |(?P<name>[a-zA-Z_][0-9a-zA-Z_]*)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)
    |(?P<string>'(?:[^'\n\\]|\\[^\n])*'|"(?:[^"\n\\]|\\[^\n])*")
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"""\\(?:(?P<octal>[0-7]{1,3})|[xX](?P<hex>[0-9a-fA-F]{1,2})
    |u(?P<head>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<trail>[dD][c-fC-F][0-9a-fA-F]{2})
    |u(?P<short>[0-9a-fA-F]{4})|U(?P<long>00[01][0-9a-fA-F]{5})
    |(?P<mark>\?)|(?P<plain>[abfnrtv\\'"])|(?P<bad>.))""",
    re.VERBOSE,
)
_PLAIN = {"a": b"\a", "b": b"\b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v"}
_UNDECODED = re.compile(r"[\udc80-\udcff]")
"""What ``surrogateescape`` makes of bytes that are no UTF-8."""
_BASED = re.compile(r"0[xX][0-9a-fA-F]{1,60}|0[0-7]{1,60}")
"""Hexadecimal and octal numbers; longer ones fit no field."""


class Refused(ValueError):
    """C++ refuses a token.

    Attributes:
        line: 1-based line of the token.
        column: 1-based column.
    """

    def __init__(self, said: str, text: str, at: int) -> None:
        super().__init__(said)
        self.line = text.count("\n", 0, at) + 1
        self.column = at - text.rfind("\n", 0, at)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A text for Python's parser.

    Attributes:
        text: The text.
        garbled: 1-based lines of strings whose escapes make no UTF-8; U+FFFD stands in for the odd bytes.
    """

    text: str
    garbled: tuple[int, ...]


def rewritten(text: str, floats: AbstractSet[str]) -> Rewritten:
    """Rewrite what Python's parser reads otherwise than the one of C++.

    Args:
        text: Text of any message; what is no text format is left to the parser. Bytes that are no UTF-8
            may stand in comments, decoded with ``surrogateescape``.
        floats: Names of the fields whose values are floating-point numbers.

    Raises:
        Refused: C++ refuses a token.
    """
    return _Rewriter(text, floats).run()


@dataclass(slots=True)
class _Rewriter:
    """The pieces of the new text, and what went before the next token."""

    text: str
    floats: AbstractSet[str]
    pieces: list[str] = field(default_factory=list)
    garbled: list[int] = field(default_factory=list)
    strings: list[tuple[int, re.Match[str]]] = field(default_factory=list)
    field_name: str = ""
    last_name: str = ""
    minus: int | None = None

    def run(self) -> Rewritten:
        """Go through the tokens; a quote that is never closed ends the rewriting."""
        before = ""
        for token in _TOKEN.finditer(self.text):
            kind, found = token.lastgroup or "", token.group()
            if kind == "other" and found in "\"'":
                self._end_strings()
                self.pieces.append(self.text[token.start() :])
                break
            if kind == "string":
                self.strings.append((len(self.pieces), token))
            elif kind != "space":
                self._end_strings()
            if kind == "name" and before == "number":
                raise Refused("need space between number and identifier", self.text, token.start())
            if kind != "space" and (odd := _UNDECODED.search(found)):
                raise Refused("bytes that are no UTF-8", self.text, token.start() + odd.start())
            self.pieces.append(self._piece(kind, token))
            if kind != "space" and found != "-":
                self.minus = None
            before = kind
        else:
            self._end_strings()
        return Rewritten("".join(self.pieces), tuple(self.garbled))

    def _piece(self, kind: str, token: re.Match[str]) -> str:
        found = token.group()
        in_float = self.field_name in self.floats
        if kind == "number":
            if in_float and re.match("0[0-9xX]", found):
                raise Refused(f"expected a decimal number, got: {found}", self.text, token.start())
            if _BASED.fullmatch(found):
                found = str(int(found, 16 if found[1] in "xX" else 8))
            return self._signed(found)
        if kind == "name":
            self.last_name = found
            return self._signed(found) if in_float else found
        if found == ":":
            self.field_name = self.last_name
        elif found == "-":
            self.minus = len(self.pieces)
        elif found == "+":
            raise Refused("expected a number, got: +", self.text, token.start())
        return found

    def _signed(self, number: str) -> str:
        """The number with a minus that space parts from it, which Python's parser wants right before it."""
        if self.minus is None or self.minus == len(self.pieces) - 1:
            return number
        self.pieces[self.minus] = ""
        return f"-{number}"

    def _end_strings(self) -> None:
        """Write the adjacent strings that have just ended; together they are one value."""
        run, self.strings = self.strings, []
        decoded = [_decoded(token, self.text) for _, token in run]
        if all(same for _, same in decoded) or any("\0" in token.group() for _, token in run):
            return
        value = b"".join(part for part, _ in decoded)
        try:
            whole = value.decode("utf-8")
        except UnicodeDecodeError:
            whole = value.decode("utf-8", "replace")
            self.garbled.append(self.text.count("\n", 0, run[0][1].start()) + 1)
        for at, _ in run:
            self.pieces[at] = '""'
        self.pieces[run[0][0]] = '"' + "".join(_quoted(c) for c in whole) + '"'


def _decoded(token: re.Match[str], text: str) -> tuple[bytes, bool]:
    """The bytes of a quoted string, and whether Python's parser makes the same of it.

    Raises:
        Refused: It has an escape that C++ does not know.
    """
    body, out, at, same = token.group()[1:-1], bytearray(), 0, True
    for match in _ESCAPE.finditer(body):
        kind, found = match.lastgroup or "", match.group()
        out += body[at : match.start()].encode("utf-8", "surrogatepass")
        at = match.end()
        same = same and kind == "plain"
        if kind == "bad":
            said = f"invalid escape sequence in string literal: {found}"
            raise Refused(said, text, token.start() + 1 + match.start())
        if kind == "octal":
            out.append(int(match["octal"], 8) & 255)
        elif kind == "hex":
            out.append(int(match["hex"], 16))
        elif kind in ("plain", "mark"):
            out += _PLAIN.get(found[1], found[1].encode())
        else:
            out += _character(match)
    return bytes(out + body[at:].encode("utf-8", "surrogatepass")), same


def _character(match: re.Match[str]) -> bytes:
    r"""UTF-8 of a ``\u`` or ``\U`` escape; a lone surrogate gives three bytes, which are none, as in C++."""
    if match["head"]:
        high, low = int(match["head"], 16) & 0x3FF, int(match["trail"], 16) & 0x3FF
        return chr(0x10000 + (high << 10) + low).encode()
    number = int(match["short"] or match["long"], 16)
    # C++ leaves an escape beyond Unicode as it stands.
    return chr(number).encode("utf-8", "surrogatepass") if number < 0x110000 else match.group().encode()


def _quoted(character: str) -> str:
    if character in '\\"':
        return f"\\{character}"
    return f"\\{ord(character):03o}" if ord(character) < 32 else character
