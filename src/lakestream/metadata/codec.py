"""Stored values: a format byte, a checksum, MessagePack. Unknown formats are refused, never guessed.

Each kind of value has its own format number: `stored_format` of its class, else `FIRST_FORMAT`. The format before it is
read too: as it is if fields were only added at the end, else by the class's `upgrade`. What is written is always the
present format, so an older process meets a format byte that it refuses: it would drop the fields that it does not know.

The checksum (CRC-32, little endian) is over the address, the format byte (from format 3 on) and the MessagePack, so a
value that turns up under another key than its own is damage too.
"""

import logging
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, TypeVar
from zlib import crc32

import msgspec

from lakestream.errors import CorruptObject
from lakestream.metadata.store import Address, Entry

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_FORMAT: Final = 2
_PREFIX: Final = struct.Struct("<BI")
_encode: Final = msgspec.msgpack.Encoder().encode
_decoders: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {}
"""One for each kind of value, made when the first is read."""
_CURE: Final = "restore the metadata store from a backup"


def encode(value: object, address: Address) -> bytes:
    """`address` is where the value will be stored, and the only place it can be read from."""
    body = _encode(value)
    form = _format_of(type(value))
    return _PREFIX.pack(form, _checksum(body, form, address)) + body


def decode(data: bytes, kind: type[T], address: Address) -> T:
    """Raises `CorruptObject`, which names the address and what should have been there."""
    if len(data) < _PREFIX.size:
        raise CorruptObject(f"{_named(kind, address)} is damaged: {len(data)} bytes are left of it; {_CURE}")
    form, checksum = _PREFIX.unpack_from(data)
    written = _format_of(kind)
    if not FIRST_FORMAT <= form <= written or form < written - 1:
        raise CorruptObject(
            f"{_named(kind, address)} is in format {form}, this version writes format {written} and reads it and the "
            f"one before: another version of lakestream wrote it, which is the one to read it with, or it is damaged"
        )
    body = data[_PREFIX.size :]
    if _checksum(body, form, address) != checksum:
        raise CorruptObject(f"{_named(kind, address)} is damaged: its checksum does not hold; {_CURE}")
    try:
        value: T
        upgrade: Callable[[bytes], T] | None = getattr(kind, "upgrade", None)
        if form < written and upgrade is not None:
            value = upgrade(body)
            return value
        decoder = _decoders.get(kind)
        if decoder is None:
            decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
        value = decoder.decode(body)
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


def _format_of(kind: type) -> int:
    number: int = getattr(kind, "stored_format", FIRST_FORMAT)
    return number


def _checksum(body: bytes, form: int, address: Address) -> int:
    return crc32(body, _seed(address, form))


@lru_cache(maxsize=4096)
def _seed(address: Address, form: int) -> int:
    shard, key = address
    seed = crc32(f"{shard}\0{key}".encode())
    return seed if form == FIRST_FORMAT else crc32(bytes((form,)), seed)


def _named(kind: type, address: Address) -> str:
    return f"the metadata value {address.key!r} of {address.shard!r} ({getattr(kind, '__name__', kind)})"
