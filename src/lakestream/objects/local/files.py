"""The bytes of files: new ones, written and synced, and ranges of old ones.

What is large and read once at most bypasses the page cache where the file system can: tails are served from memory,
and a WAL object is read once more, by the pipeline, so caching it costs more CPU than all else that is done with the
bytes (measured: 0.6 to 4 ms a megabyte, by how warm the machine's memory is, against 0.3 ms).
"""

import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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


class Files:
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
            try:
                self._write_direct(descriptor, parts)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._refused(error)
            with suppress(FileNotFoundError):
                os.unlink(path)
            return False
        return True

    def _refused(self, error: OSError) -> None:
        """Remembers a file system that cannot; any other error is raised."""
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise error
        self._direct = False

    @contextmanager
    def _aligned(self) -> Iterator[memoryview]:
        """Memory that is kept for the next one: fresh memory would cost what the cache does."""
        chunk = self._chunks.pop() if self._chunks else memoryview(mmap.mmap(-1, CHUNK_BYTES))
        try:
            yield chunk
        finally:
            self._chunks.append(chunk)

    def _write_direct(self, descriptor: int, parts: Sequence[Buffer]) -> None:
        with self._aligned() as chunk:
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
                _write_whole(descriptor, chunk[: _whole_blocks(filled)])
                os.ftruncate(descriptor, size_bytes)

    def read(self, path: str, start: int | None, length: int | None, *, once: bool = False) -> bytes:
        """`length` bytes from `start`; without start the last ones; without both everything. Fewer if the file ends.
        `once`: nobody needs them again soon."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size_bytes = os.fstat(descriptor).st_size
            if length is None:
                start, length = 0, size_bytes
            elif start is None:
                start = max(0, size_bytes - length)
            end = min(start + length, size_bytes)
            if once and self._direct and end - start >= DIRECT_FROM_BYTES:
                found = self._read_direct(path, start, end)
                if found is not None:
                    return found
            return _read_buffered(descriptor, start, end)
        finally:
            os.close(descriptor)

    def _read_direct(self, path: str, start: int, end: int) -> bytes | None:
        """None if this file system has no direct reads."""
        pieces: list[bytes] = []
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _O_DIRECT)
            try:
                with self._aligned() as chunk:
                    while start < end:
                        skipped = start % BLOCK_BYTES
                        wanted = min(_whole_blocks(end - start + skipped), CHUNK_BYTES)
                        got = min(os.preadv(descriptor, [chunk[:wanted]], start - skipped) - skipped, end - start)
                        if got <= 0:
                            break
                        pieces.append(bytes(chunk[skipped : skipped + got]))
                        start += got
            finally:
                os.close(descriptor)
        except OSError as error:
            self._refused(error)
            return None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _whole_blocks(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


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


def _read_buffered(descriptor: int, start: int, end: int) -> bytes:
    chunks = []
    while start < end:
        chunk = os.pread(descriptor, end - start, start)
        if not chunk:
            break
        chunks.append(chunk)
        start += len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
