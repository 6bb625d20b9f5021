"""A stream of JSON objects, one after the other with or without white space between them, read one by one."""

import re
from typing import Final, Generic, TypeVar

import msgspec

from lakestream.http.rest.errors import NOT_JSON, Fault

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_MARK: Final = re.compile(rb'["{}\[\]]')
_END_OF_TEXT: Final = re.compile(rb'["\\]')
_OPEN: Final = b"{["
_QUOTE: Final = ord('"')
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
T = TypeVar("T")


class ObjectSplitter(Generic[T]):
    """Holds what is not whole yet, at most `most_bytes` and one piece more."""

    def __init__(self, decoder: "msgspec.json.Decoder[T]", most_bytes: int) -> None:
        self._decoder = decoder
        self._most_bytes = most_bytes
        self._rest = bytearray()
        self._at = 0
        """How far the object that is not whole has been looked at."""
        self._depth = 0
        self._in_text = False
        self._in_lines = True
        """Each object was a line so far: then its end need not be looked for."""
        self.is_broken = False
        """Nothing can follow: the last fault says why."""

    def feed(self, data: bytes) -> list[T | Fault]:
        """The objects that are whole now, a fault for each that is not as it should be."""
        rest = self._rest
        found: list[T | Fault] = []
        rest += data
        if self._in_lines and not self._depth:
            self._at = 0
            found += self._lines()
        start = 0
        while not self.is_broken:
            if not self._depth:
                space = _SPACE.match(rest, self._at)
                start = self._at = len(rest) if space is None else space.end()
                if start == len(rest):
                    break
                if rest[start] != _OPEN[0]:
                    return [*found, self._broken("Error processing JSON: a record is an object")]
                if self._in_lines and (line := rest.find(b"\n", start)) >= 0:
                    try:
                        found.append(self._decoder.decode(bytes(rest[start:line])))
                    except _UNREADABLE:
                        self._in_lines = False
                    else:
                        self._at = line + 1
                        continue
            end = self._end()
            if end < 0:
                break
            found.append(self._decoded(bytes(rest[start:end])))
            self._at = end
        del rest[:start]
        self._at -= start
        if len(rest) > self._most_bytes:
            found.append(
                self._broken(f"Error processing message: a record has more than {self._most_bytes} bytes", 413)
            )
        return found

    def _lines(self) -> list[T]:
        """All that are whole, in one go, if each is a line and as it should be; else none."""
        end = self._rest.rfind(b"\n") + 1
        try:
            found = self._decoder.decode_lines(bytes(self._rest[:end])) if end else []
        except _UNREADABLE:
            return []
        del self._rest[:end]
        return found

    def finish(self) -> Fault | None:
        """What is wrong with the end of the stream."""
        if not self._rest.strip():
            return None
        return self._broken("Error processing JSON: the request ends within a record")

    def _broken(self, message: str, code: int = NOT_JSON) -> Fault:
        self.is_broken = True
        return Fault(code, message)

    def _decoded(self, text: bytes) -> T | Fault:
        """What is no JSON within its braces is the fault of that object alone."""
        try:
            return self._decoder.decode(text)
        except msgspec.ValidationError as error:
            return Fault(NOT_JSON, f"Cannot deserialize the record: {error}")
        except _UNREADABLE as error:
            return Fault(NOT_JSON, f"Error processing JSON: {error}")

    def _end(self) -> int:
        """Where the object ends; -1: not yet."""
        rest, at = self._rest, self._at
        while True:
            found = (_END_OF_TEXT if self._in_text else _MARK).search(rest, at)
            if found is None:
                self._at = len(rest)
                return -1
            mark, at = rest[found.start()], found.end()
            if self._in_text:
                if mark == _QUOTE:
                    self._in_text = False
                elif at == len(rest):
                    self._at = found.start()
                    return -1
                else:
                    at += 1
            elif mark == _QUOTE:
                self._in_text = True
            elif mark in _OPEN:
                self._depth += 1
            else:
                self._depth -= 1
                if not self._depth:
                    return at
