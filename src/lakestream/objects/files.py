"""New files, written and synced.

Large ones bypass the page cache where the file system can: tails are served from memory and a WAL object is read once
more, by the pipeline, so caching it costs the broker more CPU than all else it does with the bytes (measured: 0.6
to 4 ms a megabyte, by how warm the machine's memory is, against 0.3 ms).
"""

import errno
import mmap
import os
from collections.abc import Sequence
from typing import Final

from lakestream.objects.store import Buffer

DIRECT_FROM_BYTES: Final = 512 * 1024
BLOCK_BYTES: Final = 4096
"""Direct writes start and end on blocks, in memory and in the file."""
CHUNK_BYTES: Final = 4 * 1024 * 1024
IOVECS: Final = 1024
STEP_BYTES: Final = 512 * 1024
"""One buffered write. Measured: above 1 MiB the kernel spends several times the CPU on fresh page cache."""
_O_DIRECT: Final = getattr(os, "O_DIRECT", 0)


class FileWriter:
    """Used from several threads at once."""

    def __init__(self) -> None:
        self._direct = bool(_O_DIRECT)
        self._chunks: list[memoryview] = []

    def create(self, path: str, parts: Sequence[Buffer]) -> None:
        """A new file at `path` that holds `parts`, safe from a power cut. Its name is the caller's to sync."""
        if not (self._direct and sum(map(len, parts)) >= DIRECT_FROM_BYTES and self._create_direct(path, parts)):
            _create_buffered(path, parts)

    def _create_direct(self, path: str, parts: Sequence[Buffer]) -> bool:
        """False, and no file, if this file system has no direct writes."""
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | _O_DIRECT, 0o666)
        except OSError as error:
            return self._refused(path, error)
        try:
            self._write_direct(descriptor, parts)
            os.fsync(descriptor)
        except OSError as error:
            return self._refused(path, error)
        finally:
            os.close(descriptor)
        return True

    def _refused(self, path: str, error: OSError) -> bool:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise error
        self._direct = False
        if os.path.exists(path):
            os.unlink(path)
        return False

    def _write_direct(self, descriptor: int, parts: Sequence[Buffer]) -> None:
        """Copies into aligned memory, which is kept for the next file: fresh memory would cost what the cache does."""
        chunk = self._chunks.pop() if self._chunks else memoryview(mmap.mmap(-1, CHUNK_BYTES))
        try:
            size_bytes = filled = 0
            for part in parts:
                view = memoryview(part)
                size_bytes += len(view)
                while view:
                    taken = min(len(view), CHUNK_BYTES - filled)
                    chunk[filled : filled + taken] = view[:taken]
                    filled, view = filled + taken, view[taken:]
                    if filled == CHUNK_BYTES:
                        _write_whole(descriptor, chunk)
                        filled = 0
            if filled:
                _write_whole(descriptor, chunk[: -(-filled // BLOCK_BYTES) * BLOCK_BYTES])
                os.ftruncate(descriptor, size_bytes)
        finally:
            self._chunks.append(chunk)


def _write_whole(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view) :]


def _create_buffered(path: str, parts: Sequence[Buffer]) -> None:
    with open(path, "xb", buffering=0) as file:
        _write_buffered(file.fileno(), parts)
        os.fsync(file.fileno())


def _write_buffered(descriptor: int, parts: Sequence[Buffer]) -> None:
    step: list[memoryview] = []
    step_bytes = 0
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), STEP_BYTES):
            piece = view[start : start + STEP_BYTES]
            if step and (step_bytes + len(piece) > STEP_BYTES or len(step) == IOVECS):
                _write_step(descriptor, step)
                step, step_bytes = [], 0
            step.append(piece)
            step_bytes += len(piece)
    _write_step(descriptor, step)


def _write_step(descriptor: int, pieces: list[memoryview]) -> None:
    while pieces:
        written = os.writev(descriptor, pieces)
        while pieces and written >= len(pieces[0]):
            written -= len(pieces.pop(0))
        if written:
            pieces[0] = pieces[0][written:]
