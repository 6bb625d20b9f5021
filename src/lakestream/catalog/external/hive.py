"""A Hive Metastore as the catalog of streams' tables: PyIceberg's, with a commit that compares.

PyIceberg holds a lock of the Metastore while it looks and writes. Such a lock ends by itself (`hive.txn.timeout`), and
whoever slept through that would write over everybody who has committed since. So each alteration also names the
metadata location that it expects, which a Metastore compares in its own transaction since Hive 2.3.10 and 4.0. Older
ones take anything; so that is tried out first, on an entry made for it. The lock stays: other engines rely on it.
"""

from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    EnvironmentContext,
    GetTableRequest,
    GetTablesRequest,
    MetaException,
    SerDeInfo,
    StorageDescriptor,
)
from hive_metastore.ttypes import Table as Entry
from pyiceberg.catalog import URI
from pyiceberg.catalog.hive import (
    HIVE_KERBEROS_AUTH,
    HIVE_KERBEROS_AUTH_DEFAULT,
    HIVE_KERBEROS_SERVICE_NAME,
    HIVE_KERBEROS_SERVICE_NAME_DEFAULT,
    HiveCatalog,
    _HiveClient,
)
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from pyiceberg.utils.properties import property_as_bool
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakestream.errors import StorageError

_ANSWER_MS: Final = 50_000
_LOCATION: Final = "metadata_location"
_PREVIOUS: Final = "previous_metadata_location"
_PATIENCE: Final = {"lock-check-max-wait-time": "0.5", "lock-check-retries": "20"}
"""For a lock that another commit holds, which takes a few calls: 10 s. PyIceberg looks after 2 s for the first time."""
_REFUSED: Final = "has been modified"


class FencedHive(HiveCatalog):
    """Imported by its name alone, so that nobody needs Thrift who has no Metastore."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **{**_PATIENCE, **properties})
        self._compares = False

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _HiveClient:
        return _HiveConnection(
            properties[URI].split(",")[0],
            properties.get("ugi"),
            property_as_bool(properties, HIVE_KERBEROS_AUTH, HIVE_KERBEROS_AUTH_DEFAULT),
            properties.get(HIVE_KERBEROS_SERVICE_NAME, HIVE_KERBEROS_SERVICE_NAME_DEFAULT),
        )

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        self._try_out(identifier)
        return super().register_table(identifier, metadata_location, overwrite)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        self._try_out(table.name())
        return super().commit_table(table, requirements, updates)

    def _try_out(self, identifier: str | Identifier) -> None:
        """Raises `StorageError` if the Metastore takes an alteration that expects what is not there. A view, because
        no folder is made for one."""
        if self._compares:
            return
        database, _ = self.identifier_to_database_and_table(identifier)
        name = f"lakestream_try_{uuid4().hex}"
        entry = Entry(
            dbName=database,
            tableName=name,
            tableType="VIRTUAL_VIEW",
            sd=StorageDescriptor(cols=[], serdeInfo=SerDeInfo()),
            partitionKeys=[],
            parameters={_LOCATION: "present"},
            viewOriginalText="SELECT 1",
            viewExpandedText="SELECT 1",
        )
        with self._client as client:
            client.create_table(entry)
            try:
                found = _trouble(client, entry)
            finally:
                client.drop_table(database, name, deleteData=False)
        if found:
            raise StorageError(
                f"the Metastore of catalog {self.name} {found}, so two writers could overwrite each other's commits:"
                " streams need Hive 2.3.10, 4.0.1 or newer on a database other than Derby"
            )
        self._compares = True


def _trouble(client: Client, entry: Entry) -> str:
    """Whether this Metastore takes what is expected, and nothing else."""
    context = EnvironmentContext(properties={})
    entry.parameters = {_LOCATION: "next", _PREVIOUS: "present"}
    try:
        client.alter_table_with_environment_context(entry.dbName, entry.tableName, entry, context)
    except MetaException as error:
        return f"cannot compare a table's metadata location ({error.message.splitlines()[0]})"
    try:
        client.alter_table_with_environment_context(entry.dbName, entry.tableName, entry, context)
    except CommitFailedException:
        return ""
    return "does not compare a table's metadata location when it alters the table"


class _HiveConnection(_HiveClient):
    """As PyIceberg's, with a client that compares, and nobody waits without end for an answer."""

    def _init_thrift_transport(self) -> Any:
        if self._kerberos_auth:
            return super()._init_thrift_transport()
        address = urlsplit(self._uri)
        socket = TSocket(address.hostname, address.port)
        socket.setTimeout(_ANSWER_MS)
        return TBufferedTransport(socket)

    def _client(self) -> Client:
        client = _FencedClient(TBinaryProtocol(self._transport))
        if self._ugi:
            client.set_ugi(*self._ugi)
        return client


class _FencedClient(Client):  # type: ignore[misc]
    """Asks for tables in the way that Hive 3 and 4 both know."""

    def get_table(self, dbname: str, tbl_name: str) -> Entry:
        return self.get_table_req(GetTableRequest(dbName=dbname, tblName=tbl_name)).table

    def get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> list[Entry]:
        found = self.get_table_objects_by_name_req(GetTablesRequest(dbName=dbname, tblNames=tbl_names)).tables
        return list(found)

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: Entry, environment_context: EnvironmentContext
    ) -> None:
        """Only if the metadata is where the alteration was made from; else `CommitFailedException`."""
        expected = new_tbl.parameters[_LOCATION if new_tbl.tableName != tbl_name else _PREVIOUS]
        environment_context.properties |= {"expected_parameter_key": _LOCATION, "expected_parameter_value": expected}
        try:
            super().alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)
        except MetaException as error:
            if _REFUSED not in str(error.message):
                raise
            raise CommitFailedException(f"table {dbname}.{tbl_name} has changed: {error.message}") from error
