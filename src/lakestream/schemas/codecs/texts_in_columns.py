"""Text in place of the bytes that the interpreters leave of what becomes text."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from lakestream.schemas.codecs.layout import JSON_PREFIX_BYTES
from lakestream.schemas.codecs.slots import ColumnSlot

S = TypeVar("S")
K = TypeVar("K")


def has_text(slot: ColumnSlot) -> bool:
    return any(each.column.content == "json" for each in slot.all())


def with_texts(
    array: pa.Array, slot: ColumnSlot, texts: Sequence[tuple[S, K]], written: Callable[[S, K, bytes], str]
) -> pa.Array:
    """The array with text where the bytes of what becomes it are, behind the number of what they are in `texts`. What
    is shorter than such a number is text already."""

    def text(data: bytes | None) -> str | None:
        if data is None:
            return None
        if len(data) < JSON_PREFIX_BYTES:
            return data.decode()
        schema, kind = texts[int.from_bytes(data[:JSON_PREFIX_BYTES], "little")]
        return written(schema, kind, data[JSON_PREFIX_BYTES:])

    if slot.column.content == "json":
        return pa.array([text(each) for each in array.cast(pa.binary()).to_pylist()], pa.string())
    if not slot.below or not has_text(slot):
        return array
    buffers: list[Any] = array.buffers()
    if slot.column.kind == "struct":
        children = [with_texts(array.field(place), child, texts, written) for place, child in enumerate(slot.below)]
        return pa.Array.from_buffers(slot.kind, len(array), buffers[:1], children=children)
    if slot.column.kind == "list":
        below = with_texts(array.values, slot.below[0], texts, written)
        return pa.Array.from_buffers(slot.kind, len(array), buffers[:2], children=[below])
    items = with_texts(array.items, slot.below[1], texts, written)
    pairs = pa.StructArray.from_arrays([array.keys, items], fields=[slot.kind.key_field, slot.kind.item_field])
    return pa.Array.from_buffers(slot.kind, len(array), buffers[:2], children=[pairs])
