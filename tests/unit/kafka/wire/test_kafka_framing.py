"""Whatever way the network cuts the bytes, the same frames come out."""

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from lakestream.kafka.wire.framing import SCRATCH_BYTES, Framer

sizes = st.one_of(st.integers(0, 64), st.integers(SCRATCH_BYTES - 8, SCRATCH_BYTES + 8), st.just(3 * SCRATCH_BYTES))


@examples(100)
@given(st.lists(sizes, max_size=6), st.lists(st.integers(1, 2 * SCRATCH_BYTES), min_size=1, max_size=8))
def test_frames_come_out_whole_and_in_order(frame_sizes: list[int], cuts: list[int]) -> None:
    frames = [bytes((index + position) % 251 for position in range(size)) for index, size in enumerate(frame_sizes)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    framer, seen, position, turn = Framer(), [], 0, 0
    while position < len(stream):
        target = framer.buffer()
        count = min(cuts[turn % len(cuts)], len(target), len(stream) - position)
        assert count > 0
        target[:count] = stream[position : position + count]
        framer.advance(count)
        position, turn = position + count, turn + 1
        while True:
            frame = framer.take()
            if frame is not None:
                seen.append(bytes(frame))
            if framer.needs_room:
                framer.grow(min(frame_sizes[len(seen)], 2 * framer.filled_bytes))
            size = framer.next_size()
            if size is None:
                break
            framer.open(size, min(size, SCRATCH_BYTES))
    assert seen == frames
    assert not framer.mid_frame


def test_a_large_frame_lands_in_its_own_buffer() -> None:
    framer = Framer()
    framer.buffer()[:4] = struct.pack(">i", 1_000_000)
    framer.advance(4)
    size = framer.next_size()
    assert size == 1_000_000
    framer.open(size, 1_000_000)
    assert len(framer.buffer()) == 1_000_000
    framer.buffer()[:] = np.zeros(1_000_000, dtype=np.uint8).data
    framer.advance(1_000_000)
    frame = framer.take()
    assert frame is not None
    assert len(frame) == 1_000_000


def test_a_frame_that_is_not_taken_costs_no_more_than_the_scratch() -> None:
    framer = Framer()
    framer.buffer()[:6] = struct.pack(">i", 50) + b"ab"
    framer.advance(6)
    assert framer.next_size() == framer.next_size() == 50
    assert framer.take() is None
    framer.discard()
    framer.buffer()[:6] = struct.pack(">i", 50) + b"ab"
    framer.advance(6)
    framer.open(50, 50)
    assert framer.mid_frame
    framer.discard()
    assert not framer.mid_frame
