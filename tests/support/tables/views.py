"""Views of tables that no catalog has."""

from collections.abc import Sequence
from uuid import UUID

from lakestream.model import DataFile, PositionDeletes
from lakestream.table.view import View


def view_of(files: Sequence[DataFile], deletes: Sequence[PositionDeletes] = ()) -> View:
    return View(UUID(int=1), "t", "tables/t", "tables/t/metadata.json", 1, (), files, tuple(deletes))
