"""Reading a WAL object's footer from an object store."""

from typing import Final

from lakestream.errors import CorruptObject
from lakestream.objects import ObjectStore
from lakestream.wal.footer import Footer
from lakestream.wal.format import TRAILER_BYTES, parse_footer, parse_trailer

TAIL_GUESS_BYTES: Final = 64 * 1024
"""Footers are smaller as a rule: one read is enough."""


async def read_footer(store: ObjectStore, key: str) -> Footer:
    """The verified footer. `CorruptObject` names the object; `ObjectMissing` if there is none.

    One read of the object's tail, and a second one only if the footer is longer than that.
    """
    name = f"{store.url}/{key}"
    tail = memoryview(await store.get_tail(key, TAIL_GUESS_BYTES))
    trailer = parse_trailer(tail, name)
    is_whole = len(tail) < TAIL_GUESS_BYTES or trailer.object_size_bytes <= TAIL_GUESS_BYTES
    if is_whole and len(tail) != trailer.object_size_bytes:
        raise CorruptObject(f"{name}: {len(tail)} bytes where {trailer.object_size_bytes} were written")
    if trailer.footer_length + TRAILER_BYTES <= len(tail):
        footer = tail[-TRAILER_BYTES - trailer.footer_length : -TRAILER_BYTES]
    else:
        start = trailer.object_size_bytes - TRAILER_BYTES - trailer.footer_length
        footer = memoryview(await store.get_range(key, start, trailer.footer_length))
    return parse_footer(footer, trailer, name)
