# mypy: ignore-errors
"""What the outside may call: every argument a number or an address."""

from typing import Any

from numba import cfunc, types

from lakestream.schemas.codecs.kernels import decode, encode, texts
from lakestream.schemas.codecs.kernels.json import reading, writing
from lakestream.schemas.codecs.kernels.protobuf import decode as decode_proto
from lakestream.schemas.codecs.kernels.protobuf import encode as encode_proto

LONG = types.int64


def decode_values(
    programs, which, root, slots, parents, slot_count, stack, offsets, data, prefix, stop, states, cursor
):
    return decode.decode_values(
        programs, which, root, slots, parents, slot_count, stack, offsets, data, prefix, stop, states, cursor
    )


def compare_values(programs, which, slots, stack, offsets, data, prefix, stop, states, spare):
    return encode.compare_values(programs, which, slots, stack, offsets, data, prefix, stop, states, spare)


def encode_values(
    programs, which, slots, stack, raw_offsets, raw_data, raw_valid, ids, prefix, stop, out, limit, ends, valid, cursor
):
    return encode.encode_values(
        programs,
        which,
        slots,
        stack,
        raw_offsets,
        raw_data,
        raw_valid,
        ids,
        prefix,
        stop,
        out,
        limit,
        ends,
        valid,
        cursor,
    )


def check_texts(offsets, data, valid, stop, wants_json, states):
    return texts.check_texts(offsets, data, valid, stop, wants_json, states)


def read_values(
    programs, which, root, slots, parents, slot_count, stack, powers, spare, offsets, data, prefix, stop, states, cursor
):
    return reading.read_values(
        programs,
        which,
        root,
        slots,
        parents,
        slot_count,
        stack,
        powers,
        spare,
        offsets,
        data,
        prefix,
        stop,
        states,
        cursor,
    )


def match_values(
    templates, order, count, slots, stack, powers, offsets, data, prefix, stop, states, spare, formats, cursor
):
    return writing.match_values(
        templates, order, count, slots, stack, powers, offsets, data, prefix, stop, states, spare, formats, cursor
    )


def write_values(
    templates,
    which,
    slots,
    stack,
    powers,
    raw_offsets,
    raw_data,
    raw_valid,
    ids,
    prefix,
    stop,
    out,
    limit,
    ends,
    valid,
    cursor,
):
    return writing.write_values(
        templates,
        which,
        slots,
        stack,
        powers,
        raw_offsets,
        raw_data,
        raw_valid,
        ids,
        prefix,
        stop,
        out,
        limit,
        ends,
        valid,
        cursor,
    )


def place_values(keys, numbers, key_count, offsets, data, valid, stop, which, begins, ends):
    return decode_proto.place_values(keys, numbers, key_count, offsets, data, valid, stop, which, begins, ends)


def decode_protobuf(
    programs, which, empties, slots, parents, slot_count, stack, begins, ends, data, stop, states, cursor
):
    return decode_proto.decode_protobuf(
        programs, which, empties, slots, parents, slot_count, stack, begins, ends, data, stop, states, cursor
    )


def compare_protobuf(programs, which, slots, stack, begins, ends, data, stop, states, spare):
    return encode_proto.compare_protobuf(programs, which, slots, stack, begins, ends, data, stop, states, spare)


def encode_protobuf(
    programs,
    choices,
    groups,
    which,
    slots,
    stack,
    raw_offsets,
    raw_data,
    raw_valid,
    stop,
    out,
    limit,
    ends,
    valid,
    cursor,
):
    return encode_proto.encode_protobuf(
        programs,
        choices,
        groups,
        which,
        slots,
        stack,
        raw_offsets,
        raw_data,
        raw_valid,
        stop,
        out,
        limit,
        ends,
        valid,
        cursor,
    )


SIGNATURES = {
    read_values: LONG(*[LONG] * 15),
    match_values: LONG(*[LONG] * 14),
    write_values: LONG(*[LONG] * 16),
    check_texts: LONG(*[LONG] * 6),
    decode_values: LONG(*[LONG] * 13),
    compare_values: LONG(*[LONG] * 10),
    encode_values: LONG(*[LONG] * 15),
    place_values: LONG(*[LONG] * 10),
    decode_protobuf: LONG(*[LONG] * 13),
    compare_protobuf: LONG(*[LONG] * 10),
    encode_protobuf: LONG(*[LONG] * 15),
}


def compiled() -> dict[str, Any]:
    """Name to compiled C function, of every entry."""
    return {
        function.__name__: cfunc(signature, nopython=True, error_model="numpy")(function)
        for function, signature in SIGNATURES.items()
    }
