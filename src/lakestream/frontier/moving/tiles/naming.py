"""The names of the Parquet files that workers write."""

import re
from typing import Final, NamedTuple
from uuid import UUID

from lakestream.table import schema

DATA_FOLDER: Final = f"{schema.DATA_FOLDER}/"
"""Below a table's location."""
_NAME: Final = re.compile(
    r"(\d{5,})-(\d{20})-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.[0-9a-f]{8})?\.parquet", re.ASCII
)


class FileBound(NamedTuple):
    """The first partition of a file, and the last offset of that partition that its commit would put into the table:
    once the frontier is beyond it, no commit can name the file any more."""

    partition: int
    last: int


def data_key(partition: int, last: int, file_id: UUID) -> str:
    """Below a table's location. `file_id` is this file's: the last segment is never given twice. A finished file's
    name carries its checksum, too: `table.seal.sealed_name`."""
    return f"{DATA_FOLDER}{partition:05d}-{last:020d}-{file_id}.parquet"


def nth_id(attempt_id: UUID, number: int) -> UUID:
    """The id of an attempt's file with this number, from 0."""
    return UUID(int=attempt_id.int ^ number)


def parse_file_name(name: str) -> FileBound | None:
    """The last segment of a key. None: we did not write that file."""
    found = _NAME.fullmatch(name)
    return FileBound(int(found.group(1)), int(found.group(2))) if found else None
