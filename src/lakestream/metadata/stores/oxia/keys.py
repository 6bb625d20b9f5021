"""Where things lie in Oxia.

Some servers sort keys by the number of their slashes first. So `/` never appears in ours: `.` and `/` are written as
`.0` and `.1`, and `..` stands between a shard and a key. No code is the beginning of another and their order is that of
the characters, so byte order is kept and a shard's rows are one range, whatever names hold.
"""

from typing import Final

FORMAT: Final = "v"
CLOCK: Final = "c"
_ROOT: Final = "r"
_BETWEEN: Final = ".."

DATA: Final = "d"
LEASE: Final = "l"
"""Kinds of rows: a key's value, and how long the lease lasts that it names the holder of."""


def root_key(shard: str) -> str:
    return _ROOT + _escaped(shard)


def root_range(start: str, end: str) -> tuple[str, str]:
    return root_key(start), root_key(end)


def shard_of(key: str) -> str | None:
    """The shard whose root lies there. None: it is no root."""
    return _restored(key[1:]) if key.startswith(_ROOT) else None


def row_key(shard: str, kind: str, key: str) -> str:
    return f"{kind}{_escaped(shard)}{_BETWEEN}{_escaped(key)}"


def key_of(shard: str, row: str) -> str:
    """The key whose row of any kind it is."""
    return _restored(row[len(row_key(shard, DATA, "")) :])


def _escaped(text: str) -> str:
    return text.replace(".", ".0").replace("/", ".1")


def _restored(text: str) -> str:
    return text.replace(".1", "/").replace(".0", ".")
