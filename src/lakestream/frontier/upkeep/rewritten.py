"""The names of files that take the place of others in a table."""

import re
from typing import Final, NamedTuple
from uuid import UUID

from lakestream.frontier.moving.tiles.naming import DATA_FOLDER

_NAME: Final = re.compile(
    r"[rc](\d{10})-(?:(\d{15})-)?\d{5,}-\d{20}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.[0-9a-f]{8})?\.parquet",
    re.ASCII,
)


class RewriteBound(NamedTuple):
    """The last version of the table on which the file may be committed. `folded_ms`: when its keys were folded with
    all that came before them; None: they were not."""

    last_version: int
    folded_ms: int | None


def rewritten_key(bound: RewriteBound, partition: int, offset: int, file_id: UUID) -> str:
    """Below a table's location. What the file holds is in the table already, so no frontier judges it."""
    kind = "r" if bound.folded_ms is None else "c"
    folded = "" if bound.folded_ms is None else f"{bound.folded_ms:015d}-"
    return f"{DATA_FOLDER}{kind}{bound.last_version:010d}-{folded}{partition:05d}-{offset:020d}-{file_id}.parquet"


def parse_rewritten(name: str) -> RewriteBound | None:
    """The last segment of a key. None: it is another file."""
    found = _NAME.fullmatch(name)
    return RewriteBound(int(found.group(1)), int(found.group(2)) if found.group(2) else None) if found else None
