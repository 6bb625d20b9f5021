"""Large files that bypass the page cache: the same bytes, as durable, and only where the file system can."""

import errno
import os
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from lakestream.objects.local.files import BLOCK_BYTES, CHUNK_BYTES, DIRECT_FROM_BYTES, Files

SIZES_BYTES = [
    DIRECT_FROM_BYTES - 1,
    DIRECT_FROM_BYTES,
    DIRECT_FROM_BYTES + 1,
    CHUNK_BYTES - 1,
    CHUNK_BYTES,
    CHUNK_BYTES + 1,
    CHUNK_BYTES + BLOCK_BYTES,
    2 * CHUNK_BYTES + 12_345,
]

direct = pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system has no direct writes")


def parts_of(size_bytes: int) -> list[bytes]:
    chosen = random.Random(size_bytes)
    data = chosen.randbytes(size_bytes)
    cuts = sorted({0, size_bytes, *(chosen.randrange(size_bytes) for _ in range(7))})
    return [data[start:end] for start, end in pairwise(cuts)]


@pytest.mark.parametrize("size_bytes", SIZES_BYTES)
def test_a_file_holds_its_parts(tmp_path: Path, size_bytes: int) -> None:
    writer = Files()
    for number in range(2):
        path, parts = tmp_path / str(number), parts_of(size_bytes + number)
        writer.create(str(path), parts)
        assert path.read_bytes() == b"".join(parts)


@direct
@pytest.mark.parametrize("size_bytes", SIZES_BYTES)
def test_short_direct_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, view: write(fd, view[: 37 * BLOCK_BYTES]))
    parts = parts_of(size_bytes)
    Files().create(str(tmp_path / "a"), parts)
    assert (tmp_path / "a").read_bytes() == b"".join(parts)


@direct
def test_a_direct_file_is_synced_after_its_last_write_and_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("write", "ftruncate", "fsync", "close"):
        original = getattr(os, name)

        def traced(descriptor: int, *rest: object, name: str = name, original: object = original) -> object:
            calls.append(name)
            return original(descriptor, *rest)  # type: ignore[operator]

        monkeypatch.setattr(os, name, traced)
    Files().create(str(tmp_path / "a"), parts_of(CHUNK_BYTES + 10))
    assert calls == ["write", "write", "ftruncate", "fsync", "close"]


@direct
@pytest.mark.parametrize("refused_at", ["open", "write"])
def test_a_file_system_without_direct_writes_gets_buffered_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused_at: str
) -> None:
    """Some refuse to open, some open and refuse to write."""
    attempts: list[str] = []

    def refuse(*_: object) -> int:
        attempts.append(refused_at)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, refused_at, refuse)
    writer = Files()
    for number in range(2):
        path, parts = tmp_path / str(number), parts_of(DIRECT_FROM_BYTES + number)
        writer.create(str(path), parts)
        assert path.read_bytes() == b"".join(parts)
    assert len(attempts) == 1, "one refusal is enough: the next file is not tried again"


@direct
def test_a_disk_that_fails_is_an_error_and_not_a_reason_to_try_buffered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, view: Sequence[int]) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = Files()
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            writer.create(str(tmp_path / "a"), parts_of(DIRECT_FROM_BYTES))
    writer.create(str(tmp_path / "b"), parts_of(DIRECT_FROM_BYTES))
    assert (tmp_path / "b").stat().st_size == DIRECT_FROM_BYTES


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("size_bytes", SIZES_BYTES)
def test_every_range_is_read_as_it_was_written(tmp_path: Path, size_bytes: int, once: bool) -> None:
    files, data = Files(), b"".join(parts_of(size_bytes))
    path = str(tmp_path / "a")
    files.create(path, [data])
    chosen = random.Random(size_bytes)
    starts = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, *(chosen.randrange(size_bytes) for _ in range(5))]
    for start in starts:
        for length in (1, DIRECT_FROM_BYTES, DIRECT_FROM_BYTES + 1, size_bytes - start, size_bytes):
            assert files.read(path, start, length, once=once) == data[start : start + length]
    assert files.read(path, None, None, once=once) == data
    assert files.read(path, None, DIRECT_FROM_BYTES, once=once) == data[-DIRECT_FROM_BYTES:]


@direct
def test_short_direct_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, data = Files(), b"".join(parts_of(CHUNK_BYTES + 12_345))
    path = str(tmp_path / "a")
    files.create(path, [data])
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, start: preadv(fd, [views[0][: 37 * BLOCK_BYTES]], start))
    assert files.read(path, 5, len(data), once=True) == data[5:]


@direct
@pytest.mark.parametrize("refused_at", ["open", "preadv"])
def test_a_file_system_without_direct_reads_gets_buffered_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused_at: str
) -> None:
    files, data = Files(), b"".join(parts_of(DIRECT_FROM_BYTES + 7))
    path = str(tmp_path / "a")
    files.create(path, [data])
    original = getattr(os, refused_at)

    def refuse(*arguments: object) -> object:
        if refused_at == "preadv" or (isinstance(arguments[1], int) and arguments[1] & os.O_DIRECT):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return original(*arguments)

    monkeypatch.setattr(os, refused_at, refuse)
    for _ in range(2):
        assert files.read(path, 0, len(data), once=True) == data


def test_an_existing_file_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"kept")
    for size_bytes in (10, DIRECT_FROM_BYTES):
        with pytest.raises(FileExistsError):
            Files().create(str(tmp_path / "a"), [bytes(size_bytes)])
    assert (tmp_path / "a").read_bytes() == b"kept"
