"""Unsigned numbers of variable length, seven bits to a byte: Kafka's, Thrift's and Parquet's alike."""

from typing import Final

_SHORT: Final = [bytes([value]) for value in range(0x80)]


def varint(value: int) -> bytes:
    """Least significant bits first; the last byte is below 0x80."""
    if value < 0x80:
        return _SHORT[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
