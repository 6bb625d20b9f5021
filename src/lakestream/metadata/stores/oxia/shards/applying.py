"""How the rows follow their root: the redo is written, what its deletes cover is removed.

Anybody may do it, any number of times and late. A row is only written over an older version, with the version id that
was read; it is only removed if it is older than the delete. See root.py for puts that come late.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from lakestream.errors import Unavailable
from lakestream.metadata.stores.oxia.keys import DATA, LEASE, row_key
from lakestream.metadata.stores.oxia.service import NO_VERSION, DeleteKey, OxiaService, PutKey, Record
from lakestream.metadata.stores.oxia.shards.root import Grave, Redo, RootAt, decode_row, encode_row, is_late
from lakestream.metadata.stores.oxia.shards.rows import Place

ATTEMPTS: Final = 8
_KINDS: Final = (DATA, LEASE)


async def apply_redo(oxia: OxiaService, shard: str, at: RootAt, row_ids: dict[Place, int]) -> bool:
    """False: rows were written too late after this root to count. `row_ids` are guesses, and are brought up to date. If
    it was too late there are none: what others have written meanwhile may be newer, and is not to be written over."""
    deletes = [grave for grave in at.root.graves if grave.sequence == at.root.sequence]
    in_time, _ = await asyncio.gather(_write(oxia, shard, at, row_ids), sweep(oxia, shard, deletes))
    return in_time


async def sweep(oxia: OxiaService, shard: str, graves: Sequence[Grave]) -> None:
    """Removes what graves cover."""
    for _ in range(ATTEMPTS):
        dead = await _dead(oxia, shard, graves)
        if not dead or all(await oxia.delete(shard, dead)):
            return
    raise Unavailable(f"what was deleted in {shard} cannot be removed from Oxia: it keeps changing")


async def _write(oxia: OxiaService, shard: str, at: RootAt, row_ids: dict[Place, int]) -> bool:
    pending = list(at.root.redo)
    guesses, in_time = dict(row_ids), True
    written: dict[Place, int] = {}
    for _ in range(ATTEMPTS):
        if not pending:
            row_ids.clear()
            if in_time:
                row_ids.update(written)
            return in_time
        stamps = await oxia.put(shard, [_put(shard, redo, at.at_ms, guesses) for redo in pending])
        missed = []
        for redo, stamp in zip(pending, stamps, strict=True):
            if stamp is None:
                missed.append(redo)
                continue
            written[redo.kind, redo.key] = stamp.version_id
            in_time = in_time and not is_late(stamp.modified_ms, at.at_ms)
        pending = []
        if missed:
            records = await oxia.read(shard, [row_key(shard, redo.kind, redo.key) for redo in missed])
            for redo, record in zip(missed, records, strict=True):
                if record is not None and _is_done(redo, record):
                    written[redo.kind, redo.key] = record.version_id
                else:
                    guesses[redo.kind, redo.key] = NO_VERSION if record is None else record.version_id
                    pending.append(redo)
    raise Unavailable(f"rows of {shard} cannot be written to Oxia: others keep changing them")


def _put(shard: str, redo: Redo, at_ms: int, guesses: dict[Place, int]) -> PutKey:
    key = row_key(shard, redo.kind, redo.key)
    expected = guesses.get((redo.kind, redo.key), NO_VERSION)
    return PutKey(key, encode_row(key, redo.version, at_ms, redo.value), expected)


def _is_done(redo: Redo, record: Record) -> bool:
    """Whether somebody else has written it, or something newer."""
    row = decode_row(record)
    return row is not None and row.version >= redo.version


async def _dead(oxia: OxiaService, shard: str, graves: Sequence[Grave]) -> list[DeleteKey]:
    """The rows below graves, with the version ids that they have."""
    dead: list[DeleteKey] = []
    single = [grave for grave in graves if grave.end is None]
    if single:
        keys = [row_key(shard, kind, grave.start) for grave in single for kind in _KINDS]
        below = [grave.sequence for grave in single for _ in _KINDS]
        for record, sequence in zip(await oxia.read(shard, keys), below, strict=True):
            dead += _older(record, sequence)
    for grave in graves:
        if grave.end is not None:
            for kind in _KINDS:
                start, end = row_key(shard, kind, grave.start), row_key(shard, kind, grave.end)
                for record in await oxia.scan(shard, start, end):
                    dead += _older(record, grave.sequence)
    return list(dict.fromkeys(dead))


def _older(record: Record | None, sequence: int) -> list[DeleteKey]:
    if record is None:
        return []
    row = decode_row(record)
    return [DeleteKey(record.key, record.version_id)] if row is None or row.version < sequence else []
