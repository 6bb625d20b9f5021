"""Hostile bytes against decode. Every buffer ends at a page that may not be touched: a byte too far is a crash."""

import contextlib
import ctypes
import mmap
import struct

import google_crc32c
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.clients.batches import batch as client_batch
from support.clients.twin import Row, batch, rows_of
from support.properties import examples

from lakestream.errors import CorruptRecords
from lakestream.records import Arena, Run, columns, control_batch, decode, encode, encoding, stamp

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)


def guarded(size: int) -> np.ndarray:
    """`size` bytes that end where a forbidden page begins."""
    whole = -(-size // PAGE) * PAGE
    region = mmap.mmap(-1, whole + PAGE)
    memory = np.frombuffer(region, np.uint8)
    if libc.mprotect(ctypes.c_void_p(memory.ctypes.data + whole), PAGE, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return memory[whole - size : whole]


def guarded_empty(shape: int, dtype: type = np.uint8) -> np.ndarray:
    return guarded(shape * np.dtype(dtype).itemsize).view(dtype)


class GuardedNumpy:
    """numpy, but for `empty`."""

    empty = staticmethod(guarded_empty)

    def __getattr__(self, name: str) -> object:
        return getattr(np, name)


@pytest.fixture(autouse=True)
def _guards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "np", GuardedNumpy())
    monkeypatch.setattr(encoding, "np", GuardedNumpy())


def guarded_copy(data: bytes) -> memoryview:
    copy = guarded(len(data))
    copy[:] = np.frombuffer(data, np.uint8)
    return memoryview(copy)


def test_the_guard_is_real() -> None:
    """The page after the buffer is there and forbidden: the system refuses to write it out."""
    memory = guarded(100)
    with open("/dev/zero", "rb") as source:
        result = libc.read(source.fileno(), ctypes.c_void_p(memory.ctypes.data + 100), 1)
    assert result == -1
    assert ctypes.get_errno() == 14


ROWS = [
    Row(0, 5, b"key", b"value", ((b"h", b"v"), (b"\xff", None))),
    Row(1, 6, None, None),
    Row(2, 7, b"", b"", (("é".encode(), b""),)),
    Row(3, 8, b"k" * 70, b"v" * 200),
]
SEEDS = [
    batch(ROWS),
    batch(ROWS[:1]) + control_batch(1, 4) + batch(ROWS),
    *(client_batch(b"a" * 60, None, b"b", compression=codec, headers=[("h", b"v")]) for codec in range(1, 5)),
]
values = st.sampled_from([0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0xFE, 0xFF]) | st.integers(0, 255)


def reseal(run: bytearray) -> None:
    """Right checksums for every batch whose frame holds."""
    position = 0
    while len(run) - position >= 61:
        (length,) = struct.unpack_from(">i", run, position + 8)
        end = position + 12 + length
        if length < 49 or end > len(run):
            return
        struct.pack_into(">I", run, position + 17, google_crc32c.value(bytes(run[position + 21 : end])))
        position = end


@examples(600, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_mutations(data: st.DataObject) -> None:
    run = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 5))):
        run[data.draw(st.integers(0, len(run) - 1))] = data.draw(values)
    if data.draw(st.booleans()):
        del run[data.draw(st.integers(0, len(run))) :]
    if data.draw(st.integers(0, 4)):
        reseal(run)
    try:
        for found in decode([Run(0, 0, guarded_copy(bytes(run)))], Arena(data.draw(st.sampled_from([64, 700, 4096])))):
            rows = list(rows_of(found))
            again = guarded_copy(bytes(encode(found)))
            base = int(found.offset[0])
            for second in decode([Run(0, base, again)], Arena(4096)):
                assert list(rows_of(second)) == rows[: len(second)]
    except CorruptRecords:
        pass


@examples(200, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_lying_headers(data: st.DataObject) -> None:
    """Counts, deltas and lengths at their extremes."""
    run = bytearray(data.draw(st.sampled_from(SEEDS)))
    position, kind = data.draw(st.sampled_from([(8, "i"), (23, "i"), (57, "i"), (27, "q"), (35, "q"), (21, "h")]))
    bits = struct.calcsize(kind) * 8
    number = data.draw(
        st.sampled_from([-1, 0, 1, 5, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))])
        | st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    struct.pack_into(f">{kind}", run, position, number)
    reseal(run)
    try:
        for found in decode([Run(0, 0, guarded_copy(bytes(run)))], Arena(4096)):
            list(rows_of(found))
    except CorruptRecords:
        pass
    copy = guarded_copy(bytes(run))
    with contextlib.suppress(CorruptRecords):
        stamp(copy, 10)


@pytest.mark.parametrize("data", [b"", b"x", bytes(60), bytes(61), bytes(200), b"\xff" * 200])
def test_no_batches_at_all(data: bytes) -> None:
    if not data:
        assert list(decode([Run(0, 0, data)], Arena(64))) == []
        return
    with pytest.raises(CorruptRecords):
        list(decode([Run(0, 0, guarded_copy(data))], Arena(64)))
