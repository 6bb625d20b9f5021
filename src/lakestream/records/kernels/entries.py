# mypy: ignore-errors
"""What the outside may call: the kernels with plain C signatures, every argument a number or an address.

Column arrays come as a table of addresses, in the order of `lakestream.records.columns.source_arrays`.
"""

from typing import Any

from numba import cfunc, njit, types

from lakestream.records.kernels import batch, checksum, decode, encode
from lakestream.records.kernels.intrinsics import get_i64

LONG = types.int64


@njit(nogil=True)
def binary_at(table, index):
    return decode.Binary(get_i64(table, index), get_i64(table, index + 1), get_i64(table, index + 2))


@njit(nogil=True)
def source_at(table, index):
    return encode.Source(
        get_i64(table, index),
        get_i64(table, index + 1),
        get_i64(table, index + 2),
        get_i64(table, index + 3),
        binary_at(table, index + 4),
        binary_at(table, index + 7),
        get_i64(table, index + 10),
        binary_at(table, index + 11),
        binary_at(table, index + 14),
        binary_at(table, index + 17),
    )


@njit(nogil=True)
def sink_at(table):
    """The partition column, what a source has, the spare room."""
    columns = source_at(table, 1)
    return decode.Sink(
        get_i64(table, 0),
        columns.offset,
        columns.timestamp,
        columns.timestamp_type,
        columns.crc,
        columns.key,
        columns.value,
        columns.header_offsets,
        columns.header_key,
        columns.header_value,
        columns.headers_raw,
        get_i64(table, 21),
    )


def crc32c(crc, buffer, start, end):
    return checksum.update(crc, buffer, start, end)


def check_records(buffer, position, end, count, base_timestamp, needs_keys, earliest, latest, ids, id_count, result):
    return batch.check_records(
        buffer, position, end, count, base_timestamp, needs_keys, earliest, latest, ids, id_count, result
    )


def stamp(buffer, limit, offset):
    return batch.stamp(buffer, limit, offset)


def decode_run(buffer, limit, partition, table, cursor, capacity):
    return decode.decode_run(buffer, limit, partition, sink_at(table), cursor, capacity)


def decode_batch(head, buffer, end, partition, base_offset, table, cursor, capacity):
    return decode.decode_batch(head, 0, buffer, 0, end, partition, base_offset, sink_at(table), cursor, capacity)


def encode_rows(table, rows, stop, out, limit, batch_bytes, batch_records, cursor, checks):
    return encode.encode(source_at(table, 0), rows, stop, out, limit, batch_bytes, batch_records, cursor, checks)


SIGNATURES = {
    crc32c: types.uint32(types.uint32, LONG, LONG, LONG),
    check_records: LONG(*[LONG] * 11),
    stamp: LONG(LONG, LONG, LONG),
    decode_run: LONG(LONG, LONG, LONG, LONG, LONG, LONG),
    decode_batch: LONG(LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG),
    encode_rows: LONG(LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG),
}


def compiled() -> dict[str, Any]:
    """Name to compiled C function, of every entry."""
    return {
        function.__name__: cfunc(signature, nopython=True, error_model="numpy")(function)
        for function, signature in SIGNATURES.items()
    }
