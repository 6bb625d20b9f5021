"""The deep check of a request's batches: a millisecond of it on the event loop at most, the rest in a thread.

What a compressed batch holds is known only when it is decompressed, and a small one can hold a lot: 122 KB of gzip took
half a second. So the event loop gives every request a little room; what does not fit into it is checked aside. Requests
of one connection are admitted one after the other, so the order of its appends does not change.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from lakestream.errors import LakestreamError, RequestError
from lakestream.objects import Buffer
from lakestream.records import MAX_DECOMPRESSED_BYTES, BatchInfo, BatchRules, OutOfRoom, take
from lakestream.records.layout import MAGIC, TRANSACTIONAL_BIT

LOOP_BYTES: Final = 256 * 1024
"""Of one request, decompressed on the event loop."""
PLAIN_LOOP_BYTES: Final = 2 * 1024 * 1024
"""Of one request, checked there as they came: a pass over them costs an eighth of decompressing as many."""
_USUAL_RATIO: Final = 4
"""What compresses better than this may be decompressed twice: a little on the event loop, all of it aside."""
_ATTRIBUTES: Final = 22
_BATCH_MAGIC: Final = 2
_CODEC_MASK: Final = 7


class ReceivedBatch(NamedTuple):
    """One partition's records, and what its topic takes. `check` raises `RequestError` for a batch that keeps the rules
    and is not taken all the same; it takes its time."""

    run: Buffer
    rules: BatchRules
    check: Callable[[Buffer], None] | None = None


class Kept(NamedTuple):
    """The same in the form in which the topic keeps it."""

    run: Buffer
    batch: BatchInfo


Checked = Kept | LakestreamError
"""As it is kept, or why it is not."""


def is_transactional(run: Buffer) -> bool:
    """Of bytes that are no batch at all the bit says nothing: what they are is found out by checking them."""
    return len(run) > _ATTRIBUTES and run[MAGIC] == _BATCH_MAGIC and bool(run[_ATTRIBUTES] & TRANSACTIONAL_BIT)


def codec_of(run: Buffer) -> int:
    return run[_ATTRIBUTES] & _CODEC_MASK if len(run) > _ATTRIBUTES else 0


def check_small(batches: Sequence[ReceivedBatch], now_ms: int) -> list[Checked] | None:
    """None: too much for the event loop."""
    if any(batch.check is not None for batch in batches):
        return None
    if sum(len(batch.run) for batch in batches) > PLAIN_LOOP_BYTES:
        return None
    compressed = [batch for batch in batches if codec_of(batch.run) or batch.rules.compression is not None]
    room_bytes = LOOP_BYTES // max(len(compressed), 1)
    if any(len(batch.run) * _USUAL_RATIO > room_bytes for batch in compressed):
        return None
    try:
        return [_check(batch, now_ms, room_bytes) for batch in batches]
    except OutOfRoom:
        return None


def check_all(batches: Sequence[ReceivedBatch], now_ms: int) -> list[Checked]:
    """Whatever they hold: for a thread."""
    return [_check(batch, now_ms) for batch in batches]


def _check(batch: ReceivedBatch, now_ms: int, room_bytes: int = MAX_DECOMPRESSED_BYTES) -> Checked:
    try:
        kept = Kept(*take(batch.run, batch.rules, now_ms, room_bytes))
        if batch.check is not None:
            batch.check(batch.run)
        return kept
    except RequestError as error:
        return error
