# mypy: ignore-errors
"""Entries of slots: added, left empty, taken back."""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import copy_bytes, get_i32, get_i64, set_i32, set_i64, set_u8
from lakestream.schemas.codecs.layout import PARENT_WORDS, SLOT_WORDS, SlotField

VALID, DATA, OFFSETS = int(SlotField.VALID), int(SlotField.DATA), int(SlotField.OFFSETS)
COUNT, CAPACITY = int(SlotField.COUNT), int(SlotField.CAPACITY)
BYTES, BYTE_CAPACITY, WIDTH = int(SlotField.BYTES), int(SlotField.BYTE_CAPACITY), int(SlotField.WIDTH)


@njit(nogil=True, inline="always")
def slot_at(slots, number):
    return slots + number * (SLOT_WORDS * 8)


@njit(nogil=True, inline="always")
def added(slot):
    """The place of a new entry that is there, or -1: there is no room."""
    place = get_i64(slot, COUNT)
    if place >= get_i64(slot, CAPACITY):
        return np.int64(-1)
    set_u8(get_i64(slot, VALID), place, np.uint8(1))
    set_i64(slot, COUNT, place + 1)
    return place


@njit(nogil=True, inline="always")
def added_bytes(slot, length):
    """Where the bytes of a new entry of that length go, or -1."""
    place = get_i64(slot, COUNT)
    at = get_i64(slot, BYTES)
    if place >= get_i64(slot, CAPACITY) or length > get_i64(slot, BYTE_CAPACITY) - at:
        return np.int64(-1)
    set_u8(get_i64(slot, VALID), place, np.uint8(1))
    set_i32(get_i64(slot, OFFSETS), place + 1, np.int32(at + length))
    set_i64(slot, COUNT, place + 1)
    set_i64(slot, BYTES, at + length)
    return at


@njit(nogil=True)
def add_copy(slot, buffer, start, length):
    at = added_bytes(slot, length)
    if at < 0:
        return False
    copy_bytes(get_i64(slot, DATA), at, buffer, start, length)
    return True


@njit(nogil=True)
def leave_empty(slots, extra, position, number):
    """A null in each of the slots. The first one without room, or -1: all had."""
    for index in range(number):
        which = get_i64(extra, position + index)
        slot = slot_at(slots, which)
        place = get_i64(slot, COUNT)
        if place >= get_i64(slot, CAPACITY):
            return which
        set_u8(get_i64(slot, VALID), place, np.uint8(0))
        width = get_i64(slot, WIDTH)
        for byte in range(width):
            set_u8(get_i64(slot, DATA), place * width + byte, np.uint8(0))
        offsets = get_i64(slot, OFFSETS)
        if offsets != 0:
            set_i32(offsets, place + 1, get_i32(offsets, place))
        set_i64(slot, COUNT, place + 1)
    return np.int64(-1)


@njit(nogil=True)
def take_back(slots, parents, slot_count, row):
    """All that was added since the table had `row` rows. Parents come before their children."""
    for number in range(slot_count):
        slot = slot_at(slots, number)
        parent = get_i64(parents, number * PARENT_WORDS)
        place = row
        if parent >= 0:
            above = slot_at(slots, parent)
            place = get_i64(above, COUNT)
            if get_i64(parents, number * PARENT_WORDS + 1):
                place = np.int64(get_i32(get_i64(above, OFFSETS), place))
        set_i64(slot, COUNT, place)
        if get_i64(slot, BYTE_CAPACITY) > 0:
            set_i64(slot, BYTES, np.int64(get_i32(get_i64(slot, OFFSETS), place)))
