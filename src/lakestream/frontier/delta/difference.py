"""What a mirror commit is: the difference between Iceberg's live files and Delta's. Pure."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from lakestream.catalog.files import version_of
from lakestream.errors import StorageError
from lakestream.frontier.delta.port import Added, MirrorStep, Shown
from lakestream.model import DataFile
from lakestream.objects.paths import relative
from lakestream.table.view import View

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def difference(shown: Shown, view: View, columns: pa.Schema, now_ms: int) -> MirrorStep | None:
    """None: Delta shows the view already. Raises `StorageError`, which says why, for a view that Delta cannot show."""
    check_mirrorable(view)
    if shown.features:
        raise StorageError(
            f"somebody has given the Delta mirror of {view.table} features that it is not written with"
            f" ({', '.join(shown.features)}), so it stays as it was: delete the folder _delta_log, and the mirror"
            " begins anew"
        )
    live = {_below(view, file): file for file in view.files}
    snapshot_id = -1 if view.snapshot_id is None else view.snapshot_id
    step = MirrorStep(
        add=[Added(path, file.size_bytes, stats_of(file)) for path, file in live.items() if path not in shown.paths],
        remove=sorted(shown.paths - live.keys()),
        columns=_new_columns(view, shown.columns, columns),
        snapshot_id=snapshot_id,
        metadata_version=version_of(view.metadata_location),
        timestamp_ms=now_ms,
    )
    same = not step.add and not step.remove and not step.columns
    return None if same and shown.snapshot_id == snapshot_id else step


def check_mirrorable(view: View) -> None:
    """Delta's live files are whole: it would show rows that position deletes have taken out of Iceberg's. A file that
    no stream can be served from is not shown either, until its owner has decided what becomes of it."""
    trouble = next((file.trouble for file in view.files if file.trouble), None)
    if trouble is not None:
        raise StorageError(f"{view.table} has a file in trouble, so its Delta mirror stays as it was: {trouble}")
    if view.deletes:
        raise StorageError(
            f"{view.table} has rows that are deleted by {len(view.deletes)} delete files (merge-on-read), which its "
            "Delta mirror would still show, so the mirror stays as it was: rewrite the table's data files with "
            "delete-file-threshold=1 and remove-dangling-deletes=true, and set write.delete.mode, write.update.mode "
            "and write.merge.mode to copy-on-write"
        )


def stats_of(file: DataFile) -> str:
    """Delta's statistics, by which its readers skip files. What the manifest does not say is left out."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, bottom, top in (
        ("_stream_partition", file.partition_min, file.partition_max),
        ("_offset", file.offset_min, file.offset_max),
    ):
        if bottom is not None and top is not None:
            low[name], high[name], nulls[name] = bottom, top, 0
    if file.timestamp_min_ms is not None and file.timestamp_max_ms is not None:
        # Bounds are cut to milliseconds: the one after the last is beyond every row.
        earliest, latest = _time(file.timestamp_min_ms), _time(file.timestamp_max_ms + 1)
        if earliest is not None and latest is not None:
            low["_timestamp"], high["_timestamp"] = earliest, latest
    stats = {"numRecords": file.record_count, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(stats, separators=(",", ":"))


def _time(timestamp_ms: int) -> str | None:
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except OverflowError:
        return None


def _below(view: View, file: DataFile) -> str:
    path = relative(file.path, view.location)
    if path is None:
        raise StorageError(
            f"{view.table} has a file outside of its folder ({file.path}), which not every Delta reader finds, so its "
            "mirror stays as it was: rewrite the table's data files"
        )
    return path


def _new_columns(view: View, shown: pa.Schema, columns: pa.Schema) -> list[pa.Field]:
    changed = [
        name
        for name in shown.names
        if name not in columns.names or not _same_type(columns.field(name).type, shown.field(name).type)
    ]
    if changed:
        raise StorageError(
            f"columns of {view.table} were dropped or retyped ({', '.join(changed)}), which its Delta mirror cannot "
            "follow, so it stays as it was: delete the folder _delta_log, and the mirror begins anew"
        )
    return [field for field in columns if field.name not in shown.names]


def _same_type(left: pa.DataType, right: pa.DataType) -> bool:
    """Names and kinds: whether a part may be absent, and how wide its buffers' offsets are, is no difference."""
    return _shape(left) == _shape(right)


def _shape(kind: pa.DataType) -> object:
    if pa.types.is_struct(kind):
        return [(kind.field(index).name, _shape(kind.field(index).type)) for index in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return "map", _shape(kind.key_type), _shape(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list", _shape(kind.value_type)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    return str(kind)
