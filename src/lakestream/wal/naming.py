"""Names of WAL objects: `wal/<generation>/<session>-<flush>.wal`.

Generations are padded with zeros, so that key order is their order. A session's name ends in the id of its cluster:
clusters that share a bucket must not take each other's objects for dead ones, whose log they cannot see.
"""

import re
from collections.abc import Collection
from typing import Final, NamedTuple
from uuid import UUID

WAL_PREFIX: Final = "wal/"

_SESSION: Final = r"[0-9A-Za-z_][0-9A-Za-z_-]*"
_KEY: Final = re.compile(rf"wal/(\d{{10,}})/({_SESSION})-(\d{{10,}})\.wal", re.ASCII)


class ObjectName(NamedTuple):
    generation: int
    session: str
    flush: int


def session_name(unique: UUID, cluster: str) -> str:
    return f"{unique.hex}_{cluster}"


def is_foreign(session: str, clusters: Collection[str]) -> bool:
    """Whether it is a session of another cluster than the one that has these ids. One that says nothing is none."""
    _, _, said = session.partition("_")
    return bool(said) and said not in clusters


def object_key(generation: int, session: str, flush: int) -> str:
    """Unique as long as a session never repeats a flush within a generation."""
    key = f"{WAL_PREFIX}{generation:010d}/{session}-{flush:010d}.wal"
    if _KEY.fullmatch(key) is None:
        raise ValueError(f"generation {generation}, session {session!r}, flush {flush} give no valid name")
    return key


def parse_key(key: str) -> ObjectName:
    """The inverse of `object_key`; ValueError for any other name."""
    match = _KEY.fullmatch(key)
    if match is None:
        raise ValueError(f"{key!r} is not the name of a WAL object")
    name = ObjectName(int(match[1]), match[2], int(match[3]))
    if object_key(*name) != key:
        raise ValueError(f"{key!r} is not the name of a WAL object")
    return name
