"""Which records of a batch a topic does not take, and why. For the batch that is refused, not for those that pass."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lakestream.errors import InvalidRecords, InvalidTimestamp, UnknownSchema
from lakestream.records.checking.rules import BatchRules, SchemaIds
from lakestream.records.columns import Arena, Binary
from lakestream.records.decoding import Run, decode
from lakestream.records.framing import framed_ids
from lakestream.records.layout import NO_TIMESTAMP
from lakestream.records.native import Buffer

_ARENA_BYTES: Final = 1024
_KEYLESS: Final = -1
_OUT_OF_BOUNDS: Final = -2
_UNFRAMED: Final = -3
_NO_FAULT: Final = -4
"""Of a record; from 0 on: the id of a schema that is not known."""
_TOLD_IDS: Final = 5


def blame(run: Buffer, rules: BatchRules, now_ms: int) -> InvalidRecords:
    """The error that names the records which the topic does not take. One that lacks its key is told so first."""
    earliest, latest = rules.bounds(now_ms)
    found: list[tuple[int, int]] = []
    for columns in decode([Run(0, 0, run)], Arena(max(len(run), _ARENA_BYTES))):
        times = columns.timestamp_ms
        fault = np.full(len(columns), _NO_FAULT, np.int64)
        if rules.value_ids is not None:
            fault = _schema_faults(columns.value, rules.value_ids)
        fault = np.where((times != NO_TIMESTAMP) & ((times < earliest) | (times > latest)), _OUT_OF_BOUNDS, fault)
        if rules.needs_keys:
            fault = np.where(columns.key.valid == 0, _KEYLESS, fault)
        rows = np.flatnonzero(fault != _NO_FAULT)
        found += zip(columns.offset[rows].tolist(), fault[rows].tolist(), strict=True)
    kinds = {fault for _, fault in found}
    texts = {
        _KEYLESS: "a compacted topic takes records with a key only",
        _OUT_OF_BOUNDS: f"this topic takes timestamps from {max(earliest, 0)} to {latest} now",
    }
    if rules.value_ids is not None:
        texts |= _schema_texts("value", kinds, rules.value_ids)
    faults = [(index, texts[fault]) for index, fault in found]
    told = _told(faults)
    unknown = frozenset(fault for fault in kinds if fault >= 0)
    if rules.value_ids is not None and unknown:
        return UnknownSchema(told, faults, rules.value_ids.subject, unknown)
    return InvalidTimestamp(told, faults) if _OUT_OF_BOUNDS in kinds else InvalidRecords(told, faults)


def check_key_ids(run: Buffer, known: SchemaIds) -> None:
    """`run` is one batch. Raises `UnknownSchema`, `InvalidRecords` for keys that do not begin with one of the ids; a
    record without a key passes."""
    found: list[tuple[int, int]] = []
    for columns in decode([Run(0, 0, run)], Arena(max(len(run), _ARENA_BYTES))):
        fault = _schema_faults(columns.key, known)
        rows = np.flatnonzero(fault != _NO_FAULT)
        found += zip(columns.offset[rows].tolist(), fault[rows].tolist(), strict=True)
    if not found:
        return
    kinds = {fault for _, fault in found}
    texts = _schema_texts("key", kinds, known)
    faults = [(index, texts[fault]) for index, fault in found]
    unknown = frozenset(fault for fault in kinds if fault >= 0)
    if unknown:
        raise UnknownSchema(_told(faults), faults, known.subject, unknown)
    raise InvalidRecords(_told(faults), faults)


def _told(faults: Sequence[tuple[int, str]]) -> str:
    return f"{len(faults)} of its records are at fault, the first is number {faults[0][0]}: {faults[0][1]}"


def _schema_faults(values: Binary, known: SchemaIds) -> npt.NDArray[np.int64]:
    """A null says nothing that a schema could be for."""
    ids = framed_ids(values)
    fault = np.where(np.isin(ids, known.ids), _NO_FAULT, np.where(ids < 0, _UNFRAMED, ids))
    return np.where(values.valid == 0, _NO_FAULT, fault)


def _schema_texts(what: str, faults: Iterable[int], known: SchemaIds) -> dict[int, str]:
    """`what`: the value or the key."""
    newest = ", ".join(str(each) for each in known.ids[-_TOLD_IDS:].tolist())
    has = f"has {newest}" if len(known.ids) <= _TOLD_IDS else f"has {len(known.ids)}, the newest are {newest}"
    texts = {
        fault: f"the {what} names schema {fault}, which is no version of the subject {known.subject}"
        f" ({has if len(known.ids) else 'has none'}): register it there first"
        for fault in faults
        if fault >= 0
    }
    texts[_UNFRAMED] = (
        f"the {what} does not begin with the id of its schema (a zero byte and four bytes): use a serializer of the"
        f" schema registry, for this topic takes {what}s of the subject {known.subject} only"
    )
    return texts
