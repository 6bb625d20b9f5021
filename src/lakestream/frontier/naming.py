"""The names of the Parquet files that workers write."""

import re
from typing import Final, NamedTuple
from uuid import UUID

DATA_FOLDER: Final = "data/"
"""Below a table's location."""
_NAME: Final = re.compile(
    r"(\d{5,})-(\d{20})-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.[0-9a-f]{8})?\.parquet", re.ASCII
)


class FileStart(NamedTuple):
    """The first partition of a file, and an offset of it: at or above the start of the range it was written for."""

    partition: int
    start: int


def data_key(partition: int, start: int, file_id: UUID) -> str:
    """Below a table's location. `file_id` is one attempt's: the last segment is never given twice. A finished file's
    name carries its checksum, too: `table.seal.sealed_name`."""
    return f"{DATA_FOLDER}{partition:05d}-{start:020d}-{file_id}.parquet"


def parse_file_name(name: str) -> FileStart | None:
    """The last segment of a key. None: we did not write that file."""
    found = _NAME.fullmatch(name)
    return FileStart(int(found.group(1)), int(found.group(2))) if found else None
