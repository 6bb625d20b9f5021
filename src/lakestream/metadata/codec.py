"""Stored values: a format byte, a checksum, MessagePack. Unknown formats are refused, never guessed.

The checksum (CRC-32, little endian) is over the address and the MessagePack, so a value that turns up under another key
than its own is damage too.
"""

import logging
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, TypeVar
from zlib import crc32

import msgspec

from lakestream.errors import CorruptObject
from lakestream.metadata.store import Address, Entry

log = logging.getLogger(__name__)
T = TypeVar("T")

FORMAT: Final = 2
_PREFIX: Final = struct.Struct("<BI")
_encode: Final = msgspec.msgpack.Encoder().encode
_decoders: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {}
"""One for each kind of value, made when the first is read."""
_CURE: Final = "restore the metadata store from a backup"


def encode(value: object, address: Address) -> bytes:
    """`address` is where the value will be stored, and the only place it can be read from."""
    body = _encode(value)
    return _PREFIX.pack(FORMAT, crc32(body, _seed(address))) + body


def decode(data: bytes, kind: type[T], address: Address) -> T:
    """Raises `CorruptObject`, which names the address and what should have been there."""
    if len(data) < _PREFIX.size:
        raise CorruptObject(f"{_named(kind, address)} is damaged: {len(data)} bytes are left of it; {_CURE}")
    form, checksum = _PREFIX.unpack_from(data)
    if form != FORMAT:
        raise CorruptObject(
            f"{_named(kind, address)} is in format {form}, this version reads format {FORMAT}: another version of "
            f"lakestream wrote it, which is the one to read it with, or it is damaged"
        )
    body = data[_PREFIX.size :]
    if crc32(body, _seed(address)) != checksum:
        raise CorruptObject(f"{_named(kind, address)} is damaged: its checksum does not hold; {_CURE}")
    try:
        decoder = _decoders.get(kind)
        if decoder is None:
            decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
        value: T = decoder.decode(body)
        return value
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptObject(f"{_named(kind, address)} does not decode, although its checksum holds: {error}") from error


def decode_all(entries: Iterable[Entry], kind: type[T], shard: str) -> list[T]:
    """The values that are whole; the others are logged. For lists in which one damaged row must not hide the rest."""
    found = []
    for entry in entries:
        try:
            found.append(decode(entry.value, kind, Address(shard, entry.key)))
        except CorruptObject as error:
            log.error("%s", error)
    return found


def decode_holder(data: bytes, address: Address) -> str | None:
    """The holder of a lease. None: its row is damaged, so the lease is nobody's. Granting it anew is safe at any time,
    for whoever had it is fenced by the new token."""
    try:
        return decode(data, str, address)
    except CorruptObject as error:
        log.error("a lease is given up: %s", error)
        return None


@lru_cache(maxsize=4096)
def _seed(address: Address) -> int:
    shard, key = address
    return crc32(f"{shard}\0{key}".encode())


def _named(kind: type, address: Address) -> str:
    return f"the metadata value {address.key!r} of {address.shard!r} ({getattr(kind, '__name__', kind)})"
