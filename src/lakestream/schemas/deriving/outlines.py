"""What editors of all formats share."""

from lakestream.errors import InvalidSchema
from lakestream.table.shape import TableColumn


def outline(column: TableColumn) -> tuple[object, ...]:
    """Its type, with the names of what is inside."""
    return column.kind, column.precision, column.scale, tuple((each.name, outline(each)) for each in column.below)


def elsewhere(column: TableColumn) -> InvalidSchema:
    return InvalidSchema(
        f"column {column.name} cannot change so with its schema: register the next version of the subject, and the"
        " table follows"
    )
