"""Bytes of answers that clients have not taken yet, over all doors of a process."""

from collections.abc import Iterator
from contextlib import contextmanager

from lakestream.errors import Overloaded


class HeldAnswers:
    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.size_bytes = 0

    def check(self, more_bytes: int) -> None:
        if self.size_bytes + more_bytes > self._most_bytes:
            raise Overloaded("other clients have not read their answers yet: ask again later")

    @contextmanager
    def holding(self, more_bytes: int) -> Iterator[None]:
        self.size_bytes += more_bytes
        try:
            yield
        finally:
            self.size_bytes -= more_bytes
