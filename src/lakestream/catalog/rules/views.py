"""What a view must show before anything is committed on top of it. Pure, and known without PyIceberg."""

from collections.abc import Iterator
from typing import Final

from lakestream.errors import StorageError
from lakestream.table.view import View

VECTORS_ARE_READ_ONLY: Final = (
    "it has deletion vectors, which are read and never written: let the engine delete by position or by copy, in format"
    " version 2"
)


def check_view(view: View) -> None:
    """Raises `StorageError` if the view shows what no log can have made. The embedded catalog refuses such commits; one
    that knows nothing of streams takes them. Nothing may be committed on top: what is wrong would become part of the
    log."""
    check_rows(view)
    _raise_first(view, (delete.trouble for delete in view.deletes if delete.trouble))
    _raise_first(view, (VECTORS_ARE_READ_ONLY for delete in view.deletes if delete.vector is not None))


def check_rows(view: View) -> None:
    """The same, of the rows alone: deletes that cannot be applied are no trouble here."""
    _raise_first(view, _row_troubles(view))


def _raise_first(view: View, troubles: Iterator[str]) -> None:
    trouble = next(troubles, None)
    if trouble is not None:
        raise StorageError(
            f"{view.table}: {trouble}; nothing is committed to it until its owner has taken that back, for example by a"
            " rollback to the snapshot before"
        )


def _row_troubles(view: View) -> Iterator[str]:
    rows = 0
    for file in view.files:
        rows += file.record_count
        if file.trouble:
            yield file.trouble
        first, last = file.partition_min, file.partition_max
        if first is None or last is None or file.offset_max is None:
            continue
        if last >= len(view.frontier):
            yield f"{file.path} has rows of partition {last}, and the topic has {len(view.frontier)}"
        elif file.offset_max >= max(view.frontier[first : last + 1], default=0):
            yield f"{file.path} has offset {file.offset_max}, which the log has not given to the table yet"
    most = sum(view.frontier) + sum(delete.record_count for delete in view.deletes)
    if rows > most:
        yield f"it has {rows} rows where its stream can have {most} at most"
