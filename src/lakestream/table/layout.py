"""How the owner of a stream's table wants its files laid out: a partition spec with fields of the owner's own before
those of the log. A value that views carry; `rewriting.groups` tells which rows belong together."""

from typing import NamedTuple


class LayoutField(NamedTuple):
    """Of the spec, in its order: a column, and a transform in Iceberg's word for it."""

    column: str
    transform: str


class Layout(NamedTuple):
    """`fields` include those of the log, so that the rows of a group are of one stream partition and offset window."""

    spec_id: int
    fields: tuple[LayoutField, ...]
