"""The names of the files of a derived table: which bucket they are of, and until when they can come into the table."""

import re
from typing import Final, NamedTuple
from uuid import UUID

from lakestream.table.schema import DATA_FOLDER

_NAME: Final = re.compile(
    r"([ld])(\d{10})-(\d{5})-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"(?:\.[0-9a-f]{8})?(?:-moved[0-9a-f]{8})*\.parquet",
    re.ASCII,
)
"""One of deleted places is written anew when its bucket moves."""


class DerivedName(NamedTuple):
    """`last_version`: of the table, on which the file may be committed; on a later one never."""

    last_version: int
    bucket: int
    is_deletes: bool


def derived_key(name: DerivedName, file_id: UUID) -> str:
    """Below the table's location. The last segment is never given twice."""
    kind = "d" if name.is_deletes else "l"
    return f"{DATA_FOLDER}/{kind}{name.last_version:010d}-{name.bucket:05d}-{file_id}.parquet"


def parse_derived(path: str) -> DerivedName | None:
    """Of a path or key. None: it is another file."""
    found = _NAME.fullmatch(path.rsplit("/", 1)[-1])
    return DerivedName(int(found.group(2)), int(found.group(3)), found.group(1) == "d") if found else None
