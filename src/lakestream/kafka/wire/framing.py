"""Bytes of one connection → frames, with as few reads and copies as can be. Knows no socket.

Between frames, bytes land in a small scratch buffer, so that a burst of small
requests costs one read; once a larger frame's size is known, the rest of it lands in
a buffer of its own, which its owner gives room step by step.
"""

import struct
from typing import Final

import numpy as np

SCRATCH_BYTES: Final = 16 * 1024
_SIZE: Final = struct.Struct(">i")


class Framer:
    """Invariant: while a frame is open, its buffer takes all further bytes; otherwise the scratch does.

    The owner asks `next_size`, decides whether the frame may be opened now, gives it room as it needs it, and takes it
    when it is whole. As long as it does not open it, at most a scratch of bytes is held.
    """

    __slots__ = ("_end", "_filled", "_frame", "_scratch", "_size", "_start")

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._start = 0
        self._end = 0
        self._frame: memoryview | None = None
        self._size = 0
        self._filled = 0

    @property
    def mid_frame(self) -> bool:
        """Some bytes of a request are here, the rest is not."""
        return self._frame is not None or self._start != self._end

    @property
    def filled_bytes(self) -> int:
        """How much of the open frame is here."""
        return self._filled

    @property
    def needs_room(self) -> bool:
        """The open frame has more bytes to come than room for them: until `grow`, nothing may be read."""
        return self._frame is not None and self._filled == len(self._frame) < self._size

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty as long as the owner takes frames that are whole and gives room."""
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._scratch[self._end :]

    def advance(self, count: int) -> None:
        """`count` bytes were written to `buffer()`."""
        if self._frame is not None:
            self._filled += count
        else:
            self._end += count

    def next_size(self) -> int | None:
        """What the next frame says its size is, unchecked; None until that is known or while a frame is open."""
        if self._frame is not None or self._end - self._start < _SIZE.size:
            self._compact()
            return None
        size: int = _SIZE.unpack_from(self._scratch, self._start)[0]
        return size

    def open(self, size_bytes: int, room_bytes: int) -> None:
        """Starts the next frame, whose size the owner has checked, with room for a scratch or all of it at least."""
        start = self._start + _SIZE.size
        self._size = size_bytes
        self._filled = min(size_bytes, self._end - start)
        self._frame = _room(room_bytes)
        if self._filled:
            self._frame[: self._filled] = self._scratch[start : start + self._filled]
        self._start = start + self._filled

    def grow(self, room_bytes: int) -> None:
        """Gives the open frame so much room in all, at the price of a copy."""
        assert self._frame is not None
        small, self._frame = self._frame, _room(room_bytes)
        self._frame[: self._filled] = small[: self._filled]

    def whole(self) -> memoryview | None:
        """The open frame, if it is whole; it stays open."""
        return self._frame if self._filled == self._size else None

    def take(self) -> memoryview | None:
        """The open frame, if it is whole."""
        frame = self.whole()
        if frame is not None:
            self._frame = None
        return frame

    def discard(self) -> None:
        """Forgets everything."""
        self._frame = None
        self._start = self._end = 0

    def _compact(self) -> None:
        """Moves a few left-over bytes to the front, so that the scratch always has room for a size."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start and self._frame is None:
            left = bytes(self._scratch[self._start : self._end])
            self._scratch[: len(left)] = left
            self._start, self._end = 0, len(left)


def _room(size_bytes: int) -> memoryview:
    return np.empty(size_bytes, dtype=np.uint8).data if size_bytes else memoryview(b"")
