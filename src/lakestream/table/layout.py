"""How the owner of a stream's table wants its files: a partition spec with fields of the owner's own before those of
the log, and a sort order. Values that views carry; `rewriting.groups` tells which rows belong together, and
`rewriting.ordering` puts them in order."""

from typing import NamedTuple


class LayoutField(NamedTuple):
    """Of the spec, in its order: a column, and a transform in Iceberg's word for it."""

    column: str
    transform: str


class Layout(NamedTuple):
    """`fields` include those of the log, so that the rows of a group are of one stream partition and offset window."""

    spec_id: int
    fields: tuple[LayoutField, ...]


class OrderField(NamedTuple):
    """Of a sort order: a column, and a transform in Iceberg's word for it."""

    column: str
    transform: str
    is_descending: bool
    nulls_first: bool


class RowOrder(NamedTuple):
    """`order_id` is that of the table's sort order, never 0."""

    order_id: int
    fields: tuple[OrderField, ...]
