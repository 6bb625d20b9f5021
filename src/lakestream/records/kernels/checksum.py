# mypy: ignore-errors
"""CRC32C (Castagnoli): the processor's own instruction where it has one, eight table look-ups per word elsewhere.

The instruction has a latency of three cycles and one can start per cycle, so long inputs run in three lanes that are
joined by a table which advances a state over a block of zeros.
"""

import llvmlite.binding as llvm
import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import crc_byte, crc_word, get_u8, load_word

LONG_LANE = 1024
SHORT_LANE = 128
ONES = np.uint32(0xFFFFFFFF)


def _byte_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


def _after_zeros(states, count, byte_table):
    for _ in range(count):
        states = byte_table[states & 0xFF] ^ (states >> 8)
    return states


def _zeros_table(count):
    """Row k, column b: the state `b << 8k` after `count` zero bytes."""
    states = np.arange(256, dtype=np.uint32)[None, :] << np.array([[0], [8], [16], [24]], dtype=np.uint32)
    return _after_zeros(states, count, _byte_table())


LONG_SHIFT = _zeros_table(LONG_LANE)
SHORT_SHIFT = _zeros_table(SHORT_LANE)
SLICES = np.stack([_after_zeros(_byte_table(), count, _byte_table()) for count in range(8)])


@njit(nogil=True)
def _advance(table, state):
    return np.uint64(
        table[0, state & 0xFF]
        ^ table[1, (state >> np.uint64(8)) & 0xFF]
        ^ table[2, (state >> np.uint64(16)) & 0xFF]
        ^ table[3, (state >> np.uint64(24)) & 0xFF]
    )


@njit(nogil=True)
def _three_lanes(state, buffer, position, lane, table):
    second = np.uint64(0)
    third = np.uint64(0)
    for at in range(position, position + lane, 8):
        state = crc_word(state, load_word(buffer, at))
        second = crc_word(second, load_word(buffer, at + lane))
        third = crc_word(third, load_word(buffer, at + 2 * lane))
    return _advance(table, _advance(table, state) ^ second) ^ third


@njit(nogil=True, inline="always")
def _odd_bytes(state, buffer, position, count):
    """The state after 1 to 8 bytes, of which eight can be read. Zeros before a message leave a state of zero as it is:
    so the bytes take one step, behind as many zeros as a word has room for."""
    bits = np.uint64(8 * count)
    half = np.uint64(4 * count)
    word = (load_word(buffer, position) ^ state) << (np.uint64(64) - bits)
    return crc_word(np.uint64(0), word) ^ ((state >> half) >> half)


@njit(nogil=True)
def update_native(crc, buffer, start, end):
    """The CRC32C of buffer[start:end] appended to what `crc` stands for. What does not fill words comes first: a loop
    over the last bytes would cost a short record as much as all the rest."""
    state = np.uint64(crc ^ ONES)
    position = start
    if end - position >= 8:
        odd = ((end - position - 1) & 7) + 1
        state = _odd_bytes(state, buffer, position, odd)
        position += odd
    while end - position >= 3 * LONG_LANE:
        state = _three_lanes(state, buffer, position, LONG_LANE, LONG_SHIFT)
        position += 3 * LONG_LANE
    while end - position >= 3 * SHORT_LANE:
        state = _three_lanes(state, buffer, position, SHORT_LANE, SHORT_SHIFT)
        position += 3 * SHORT_LANE
    while end - position >= 8:
        state = crc_word(state, load_word(buffer, position))
        position += 8
    tail = np.uint32(state)
    while position < end:
        tail = crc_byte(tail, get_u8(buffer, position))
        position += 1
    return tail ^ ONES


@njit(nogil=True)
def update_portable(crc, buffer, start, end):
    """The same, for processors without the instruction."""
    state = np.uint32(crc ^ ONES)
    position = start
    while end - position >= 8:
        low = np.uint32(
            get_u8(buffer, position)
            | np.uint32(get_u8(buffer, position + 1)) << 8
            | np.uint32(get_u8(buffer, position + 2)) << 16
            | np.uint32(get_u8(buffer, position + 3)) << 24
        )
        state ^= low
        state = (
            SLICES[7, state & 0xFF]
            ^ SLICES[6, (state >> 8) & 0xFF]
            ^ SLICES[5, (state >> 16) & 0xFF]
            ^ SLICES[4, state >> 24]
            ^ SLICES[3, get_u8(buffer, position + 4)]
            ^ SLICES[2, get_u8(buffer, position + 5)]
            ^ SLICES[1, get_u8(buffer, position + 6)]
            ^ SLICES[0, get_u8(buffer, position + 7)]
        )
        position += 8
    while position < end:
        state = np.uint32(SLICES[0, (state ^ get_u8(buffer, position)) & 0xFF] ^ (state >> 8))
        position += 1
    return state ^ ONES


def has_native() -> bool:
    triple = llvm.get_process_triple()
    return triple.startswith("x86_64") and bool(llvm.get_host_cpu_features().get("sse4.2", False))


NATIVE = has_native()
update = update_native if NATIVE else update_portable
