"""Delta logs by delta-rs, which blocks: it runs on threads that this object owns."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake import Field as DeltaField
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.table import ProtocolVersions
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from lakestream.catalog.threads import Threads
from lakestream.errors import Conflict, StorageError, Unavailable
from lakestream.frontier.delta.port import MirrorStep, Shown

VERSION_APP: Final = "lakestream"
"""The application whose transaction is the version of the Iceberg metadata; also the fence between mirrors: delta-rs
refuses a commit if the same application has committed since the table was read."""
SNAPSHOT_APP: Final = "lakestream.snapshot"
"""The one whose transaction is the id of the Iceberg snapshot."""

PROPERTIES: Final = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.enableExpiredLogCleanup": "true",
    "delta.deletedFileRetentionDuration": "interval 30 days",
    "delta.dataSkippingStatsColumns": "_stream_partition,_offset,_timestamp",
}
"""The log stays bounded: a checkpoint every 50 commits, behind which commits older than a day go. Retention of deleted
files bounds the tombstones in checkpoints; no VACUUM sees the files themselves, whose folder is hidden."""

_MAPPED: Final = 2
"""The version for readers that has no list of features, only this one: column mapping."""
_OWN_FEATURES: Final = frozenset({"timestampNtz"})
"""Those that the mirror itself may give a table: an owner's column may be a time without a zone."""


class DeltaRs:
    """Implements `DeltaLog`. Of each log the handle of the last look is kept for the commit that follows it: never for
    the next look, a handle does not notice that its log was deleted. `close` ends the threads."""

    def __init__(self, storage_options: Mapping[str, str]) -> None:
        self._storage_options = dict(storage_options)
        self._threads = Threads()
        self._handles: dict[str, DeltaTable] = {}

    def close(self) -> None:
        self._threads.close()

    async def read(self, location: str) -> Shown | None:
        return await self._threads.run(lambda: self._read(location))

    async def create(self, location: str, name: str, columns: pa.Schema) -> None:
        await self._threads.run(lambda: self._create(location, name, columns))

    async def commit(self, location: str, shown: Shown, step: MirrorStep) -> None:
        await self._threads.run(lambda: self._commit(location, shown, step))

    def _read(self, location: str) -> Shown | None:
        try:
            table = DeltaTable(location, storage_options=self._storage_options)
            actions = table.get_add_actions()
            columns = pa.schema(table.schema().to_arrow())
            snapshot_id = table.transaction_version(SNAPSHOT_APP)
            metadata_version = table.transaction_version(VERSION_APP)
            features = _foreign_features(table.protocol())
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise _failed(location, error) from error
        self._handles[location] = table
        return Shown(
            log_version=table.version(),
            paths=frozenset(unquote(path) for path in actions.column("path").to_pylist()),
            columns=columns,
            snapshot_id=-1 if snapshot_id is None else snapshot_id,
            metadata_version=-1 if metadata_version is None else metadata_version,
            features=features,
        )

    def _create(self, location: str, name: str, columns: pa.Schema) -> None:
        try:
            schema = DeltaSchema.from_arrow(columns)
        except (DeltaError, ValueError, TypeError) as error:
            raise StorageError(f"the columns of {location} cannot be those of a Delta table: {error}") from error
        try:
            DeltaTable.create(
                location,
                schema,
                name=name,
                description="A mirror of the Iceberg table in the same folder: what is written here is undone.",
                configuration=PROPERTIES,
                storage_options=self._storage_options,
            )
        except (DeltaError, OSError) as error:
            if self._exists(location):
                raise Conflict(f"the Delta log of {location} is there already") from error
            raise _failed(location, error) from error

    def _exists(self, location: str) -> bool:
        try:
            return DeltaTable.is_deltatable(location, self._storage_options)
        except (DeltaError, OSError):
            return False

    def _version(self, location: str) -> int:
        try:
            return DeltaTable(location, storage_options=self._storage_options).version()
        except (DeltaError, OSError) as error:
            raise _failed(location, error) from error

    def _commit(self, location: str, shown: Shown, step: MirrorStep) -> None:
        table = self._handles.pop(location, None)
        if table is None or table.version() != shown.log_version:
            raise Conflict(f"the Delta log of {location} was read again since")
        now_ms = step.timestamp_ms
        fence = [
            Transaction(VERSION_APP, max(0, step.metadata_version), now_ms),
            Transaction(SNAPSHOT_APP, step.snapshot_id, now_ms),
        ]
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size_bytes, {}, now_ms, True, file.stats) for file in step.add
        ]
        actions += [RemoveAction(path, True, now_ms) for path in step.remove]
        try:
            if step.columns:
                fields = DeltaSchema.from_arrow(pa.schema(step.columns)).fields
                table.alter.add_columns([DeltaField(each.name, each.type, nullable=True) for each in fields])
            table.create_write_transaction(
                actions, "append", table.schema(), commit_properties=CommitProperties(app_transactions=fence)
            )
        except CommitFailedError as error:
            if self._version(location) == shown.log_version:
                # Nobody came first: what the table allows has been changed, by `delta.appendOnly` for example.
                raise _failed(location, error) from error
            raise Conflict(f"another mirror has committed to the Delta log of {location}") from error
        except (DeltaError, OSError) as error:
            raise _failed(location, error) from error


def _foreign_features(protocol: ProtocolVersions) -> tuple[str, ...]:
    """What readers of the table have to know and its mirror does not: a file that has a deletion vector cannot be
    removed by its path, and columns may go by other names."""
    if protocol.min_reader_version == _MAPPED:
        return ("columnMapping",)
    return tuple(sorted(set(protocol.reader_features or ()) - _OWN_FEATURES))


def _failed(location: str, error: Exception) -> Unavailable:
    """delta-rs does not tell a damaged log from a store that does not answer."""
    return Unavailable(
        f"the Delta log of {location} cannot be read or written now; if it stays so, delete its folder _delta_log, and "
        f"the mirror begins anew: {error}"
    )
