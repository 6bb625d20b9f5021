"""The kernels that pack columns, beside plain twins of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakestream.records.packing import extremes, most_delta_bytes, pack_binary, pack_deltas


def unpacked(data: bytes, bits: int) -> list[int]:
    """The numbers of a DELTA_BINARY_PACKED page, by the letter of the format."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def zigzag() -> int:
        value = varint()
        return value >> 1 ^ -(value & 1)

    def wrapped(value: int) -> int:
        return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)

    block, groups, count, last = varint(), varint(), varint(), zigzag()
    assert block % 128 == 0
    size = block // groups
    assert size % 32 == 0
    found = [last][:count]
    while len(found) < count:
        lowest = zigzag()
        widths = data[position : position + groups]
        position += groups
        for width in widths:
            assert width <= bits
            if len(found) >= count:
                assert width == 0
                continue
            packed = int.from_bytes(data[position : position + size * width // 8], "little")
            position += size * width // 8
            for index in range(size):
                if len(found) < count:
                    last = wrapped(last + lowest + (packed >> index * width & (1 << width) - 1))
                    found.append(last)
    assert position == len(data)
    return found


def numbers(bits: int) -> st.SearchStrategy[list[int]]:
    lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1
    steady = st.tuples(st.integers(0, 1 << 20), st.integers(0, 3), st.integers(0, 600)).map(
        lambda made: [made[0] + made[1] * index for index in range(made[2])]
    )
    near = st.lists(st.integers(-9, 9), max_size=400)
    return st.one_of(steady, near, st.lists(st.integers(lowest, highest), max_size=300))


@pytest.mark.parametrize("bits", [32, 64])
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_numbers_come_back(bits: int, data: st.DataObject) -> None:
    values = data.draw(numbers(bits))
    out = np.zeros(most_delta_bytes(len(values)) + 8, np.uint8)
    out[-8:] = 0xAA
    size = pack_deltas(np.array(values, f"i{bits // 8}"), out[:-8])
    assert unpacked(out[:size].tobytes(), bits) == values
    assert out[-8:].tolist() == [0xAA] * 8


def columns(rows: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([3, *map(len, rows)]).astype(np.int32)
    return offsets, np.frombuffer(b"???" + b"".join(rows), np.uint8)


close = st.binary(max_size=20) | st.lists(st.sampled_from([b"\0", b"\xff", b"same", b"samesame"]), max_size=5).map(
    b"".join
)


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(close, max_size=30))
def test_rows_stand_behind_their_lengths(rows: list[bytes]) -> None:
    offsets, data = columns(rows)
    want = b"".join(len(row).to_bytes(4, "little") + row for row in rows)
    out = np.full(len(want) + 8, 0xAA, np.uint8)
    assert pack_binary(offsets, data, out[: len(want)]) == len(want)
    assert out.tobytes() == want + b"\xaa" * 8


@settings(max_examples=500, deadline=None)
@given(rows=st.lists(close, min_size=1, max_size=30))
def test_extremes_are_as_bytes_compare(rows: list[bytes]) -> None:
    assert extremes(*columns(rows)) == (min(rows), max(rows))


def test_what_does_not_fit_is_refused() -> None:
    offsets, data = columns([b"abc", b"de"])
    with pytest.raises(ValueError, match="enough room"):
        pack_binary(offsets, data, np.empty(12, np.uint8))
    with pytest.raises(ValueError, match="that are there"):
        pack_binary(offsets, data[:5], np.empty(100, np.uint8))
    with pytest.raises(ValueError, match="enough room"):
        pack_deltas(np.arange(10), np.empty(10, np.uint8))
    with pytest.raises(ValueError, match="side by side"):
        pack_deltas(np.arange(10)[::2], np.empty(5000, np.uint8))
    with pytest.raises(ValueError, match="need a row"):
        extremes(offsets[:1], data)
