"""Where each field of a protobuf text file stands.

protobuf's own parser keeps no places for what it has read. This scanner reads the same grammar (comments,
``<>`` and ``{}`` messages, ``[...]`` lists, optional ``:``, ``,`` and ``;``, adjacent strings) without a
schema, and records line and column of every field by its path, e.g. ``input[1].dims[0]``. It is meant for
text that protobuf has accepted; on anything else it stops where it no longer understands, and never raises.
Lines are counted as protobuf counts them: only a line feed ends one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

Path: TypeAlias = tuple[tuple[str, int], ...]
"""Field names with the index of the occurrence within the message: ``(("input", 1), ("dims", 0))``."""

DEEPEST = 100
"""Messages within messages that are followed, as protobuf's own limit is."""
_TOKEN = re.compile(
    r"""(?P<space>(?:\s+|\#[^\n]*)+)
    |(?P<name>[a-zA-Z_][0-9a-zA-Z_+-]*)
    |(?P<number>(?:[0-9+-]|\.[0-9])[0-9a-zA-Z_.+-]*)
    |(?P<string>'(?:[^'\n\\]|\\.)*'|"(?:[^"\n\\]|\\.)*")
    |(?P<mark>[][{}<>:;,])""",
    re.VERBOSE,
)
_ODD = re.compile(r"#[^\n]*|[^\S \t\n\v\f\r]")
_ESCAPE = re.compile(
    r"""\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))""", re.DOTALL
)
_PLAIN = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a text, 1-based."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the text format with its place."""

    kind: str
    text: str
    place: Place


@dataclass(slots=True)
class Positions:
    """Places and scalar values by path.

    Attributes:
        places: Where a field begins: its name, or its value for the elements of a ``[...]`` list.
        values: Text of scalar fields; strings are decoded.
        complete: Whether the whole text was understood.
        refused: The first character that protobuf's C++ parser, which is Triton's, refuses although Python's
            takes it (io/tokenizer.cc): a null byte anywhere, other space than ASCII's between tokens.
    """

    places: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, str] = field(default_factory=dict)
    complete: bool = False
    refused: tuple[Place, str] | None = None

    def place(self, *path: str | int) -> Place | None:
        """The place of a path such as ``"input", 1, "dims", 0``; of its nearest ancestor if it is not there.

        A name without an index means its first occurrence.
        """
        key = _path(path)
        while key:
            if key in self.places:
                return self.places[key]
            key = key[:-1]
        return None

    def has(self, *path: str | int) -> bool:
        """Whether exactly this field is written."""
        return _path(path) in self.places

    def count(self, *path: str | int) -> int:
        """How often the last name of the path occurs there."""
        key = _path(path)
        name, number = key[-1][0], 0
        while (*key[:-1], (name, number)) in self.places:
            number += 1
        return number

    def entries(self, *path: str | int) -> Iterator[tuple[str, tuple[str | int, ...]]]:
        """Keys of a map field in the order written, each with the path of its entry."""
        for index in range(self.count(*path)):
            entry = (*path, index)
            yield self.values.get((*_path(entry), ("key", 0)), ""), entry

    def entry(self, key: str, *path: str | int) -> tuple[str | int, ...]:
        """The path of a map's entry by key, the last one if it is there twice; the map's own if it is not."""
        found: tuple[str | int, ...] = path
        for name, entry in self.entries(*path):
            if name == key:
                found = entry
        return found


def scan(text: str) -> Positions:
    """Find the places of all fields in a text of the protobuf text format.

    Args:
        text: The text; anything at all.
    """
    found = _Scanner(text).run()
    found.refused = _refused(text)
    return found


def _refused(text: str) -> tuple[Place, str] | None:
    at, odd = 0, text.find("\x00")
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            break
        if match.lastgroup == "space":
            for piece in _ODD.finditer(match.group()):
                if not piece.group().startswith("#"):
                    found = at + piece.start()
                    odd = found if odd < 0 else min(odd, found)
                    break
        at = match.end()
    if odd < 0:
        return None
    return Place(text.count("\n", 0, odd) + 1, odd - text.rfind("\n", 0, odd)), text[odd]


@dataclass(slots=True)
class _Frame:
    """A message, or a list of messages, that is being read."""

    path: Path
    closing: str
    counts: dict[str, int] = field(default_factory=dict)
    listed: str | None = None


class _Scanner:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._found = Positions()

    def run(self) -> Positions:
        """Read fields until the text ends or is no longer understood; frames stand in for recursion."""
        stack = [_Frame((), "")]
        while True:
            token = self._peek()
            frame = stack[-1]
            if token is None:
                self._found.complete = len(stack) == 1 and self._whole
                return self._found
            if token.text in (",", ";"):
                self._at += 1
            elif frame.closing and token.kind == "mark" and token.text == frame.closing:
                self._at += 1
                stack.pop()
            elif frame.listed is not None and token.text in ("{", "<"):
                self._at += 1
                stack.append(self._message(stack[-2], frame.listed, token))
            elif frame.listed is None and token.kind == "name":
                self._at += 1
                opened = self._field(frame, token)
                if opened is False:
                    return self._found
                if isinstance(opened, _Frame):
                    if len(stack) > DEEPEST:
                        return self._found
                    stack.append(opened)
            else:
                return self._found

    @property
    def _whole(self) -> bool:
        return not self._tokens or self._tokens[-1].kind != "bad"

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _field(self, frame: _Frame, name: Token) -> _Frame | bool:
        """Read what follows a field's name; a frame if a message or list of messages opens, else success."""
        token = self._peek()
        if token is not None and token.text == ":":
            self._at += 1
            token = self._peek()
        if token is None:
            return False
        if token.text in ("{", "<") and token.kind == "mark":
            self._at += 1
            return self._message(frame, name.text, Token("name", token.text, name.place))
        if token.text == "[" and token.kind == "mark":
            self._at += 1
            return self._list(frame, name)
        value = self._scalar()
        if value is None:
            return False
        self._record(frame, name.text, name.place, value)
        return True

    def _list(self, frame: _Frame, name: Token) -> _Frame | bool:
        token = self._peek()
        if token is not None and token.kind == "mark" and token.text in ("{", "<"):
            return _Frame(frame.path, "]", listed=name.text)
        while token is not None and not (token.kind == "mark" and token.text == "]"):
            if token.text == ",":
                self._at += 1
            else:
                value = self._scalar()
                if value is None:
                    return False
                self._record(frame, name.text, token.place, value)
            token = self._peek()
        self._at += 1
        return token is not None

    def _message(self, frame: _Frame, name: str, opening: Token) -> _Frame:
        path = self._record(frame, name, opening.place, None)
        return _Frame(path, "}" if opening.text == "{" else ">")

    def _record(self, frame: _Frame, name: str, place: Place, value: str | None) -> Path:
        number = frame.counts.get(name, 0)
        frame.counts[name] = number + 1
        path = (*frame.path, (name, number))
        self._found.places[path] = place
        if value is not None:
            self._found.values[path] = value
        return path

    def _scalar(self) -> str | None:
        """The next value: a name, a number, or adjacent strings joined."""
        token = self._peek()
        if token is None or token.kind not in ("name", "number", "string"):
            return None
        self._at += 1
        if token.kind != "string":
            return token.text
        data = _decoded(token.text)
        following = self._peek()
        while following is not None and following.kind == "string":
            self._at += 1
            data += _decoded(following.text)
            following = self._peek()
        return data.decode("utf-8", "surrogateescape")


def _tokens(text: str) -> Iterator[Token]:
    at, line, start = 0, 1, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            yield Token("bad", text[at], Place(line, at - start + 1))
            return
        kind, found = match.lastgroup or "", match.group()
        if kind != "space":
            yield Token(kind, found, Place(line, at - start + 1))
        breaks = found.count("\n")
        if breaks:
            line += breaks
            start = at + found.rindex("\n") + 1
        at = match.end()


def _decoded(literal: str) -> bytes:
    """The bytes of a quoted string."""
    body = literal[1:-1]
    out, at = bytearray(), 0
    for match in _ESCAPE.finditer(body):
        out += body[at : match.start()].encode("utf-8", "surrogatepass")
        octal, hexadecimal, short, long, plain = match.groups()
        if octal:
            out.append(int(octal, 8) & 255)
        elif hexadecimal:
            out.append(int(hexadecimal, 16))
        elif short or long:
            number = int(short or long, 16)
            out += chr(number if number < 0x110000 else 0xFFFD).encode("utf-8", "surrogatepass")
        elif plain in _PLAIN:
            out.append(_PLAIN[plain])
        else:
            out += plain.encode("utf-8", "surrogatepass")
        at = match.end()
    return bytes(out + body[at:].encode("utf-8", "surrogatepass"))


def _path(parts: tuple[str | int, ...]) -> Path:
    """``("input", 1, "dims", 0)`` as names with indices; a name without one means the first."""
    path: list[tuple[str, int]] = []
    for part in parts:
        if isinstance(part, str):
            path.append((part, 0))
        else:
            path[-1] = (path[-1][0], part)
    return tuple(path)
