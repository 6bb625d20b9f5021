"""A catalog of somebody else, through PyIceberg: REST, Glue, Hive, SQL, or whatever else PyIceberg knows.

Its settings are PyIceberg's own (`PYICEBERG_CATALOG__<NAME>__URI` …, `.pyiceberg.yaml`), under the name that the
operator gives. Blocking: called on the catalog's own threads only, of which each has a client to itself, because
PyIceberg promises of none of them that threads may share it.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Final, cast
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog, CatalogType, MetastoreCatalog, infer_catalog_type, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    TableAlreadyExistsError,
    ValidationError,
    WaitingForLockException,
)
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.utils.config import Config

from lakestream.catalog.threads import PerThread
from lakestream.errors import Conflict, RequestError, StorageError, TableExists, Unavailable
from lakestream.metadata.names.rows import TableName

_NEEDED: Final = {
    CatalogType.GLUE: ("boto3", "glue"),
    CatalogType.DYNAMODB: ("boto3", "dynamodb"),
    CatalogType.HIVE: ("thrift", "hive"),
    CatalogType.SQL: ("sqlalchemy", "sql-sqlite' or 'pyiceberg[sql-postgres"),
    CatalogType.BIGQUERY: ("google.cloud.bigquery", "bigquery"),
}
_CLIENT_ERRORS: Final = (
    ("sqlalchemy.exc", "SQLAlchemyError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("thrift.Thrift", "TException"),
)
"""What the libraries behind PyIceberg raise. Only those of a catalog that is in use are ever imported."""

_RENAMES: Final = 5
_HIVE: Final = "lakestream.catalog.external.hive"
"""Ours instead of PyIceberg's. By name, as PyIceberg imports the others: it needs Thrift."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table as the catalog has it. `metadata` is shared: never change it."""

    metadata: TableMetadata
    location: str


class CatalogClient:
    """`place` is how people know the catalog: no secret is in it."""

    def __init__(self, name: str, defaults: Mapping[str, str]) -> None:
        """Talks to nobody yet. `defaults` hold where PyIceberg's settings say nothing. Raises `RequestError` if they
        do not name a catalog that can be used."""
        given = Config().get_catalog_config(name)
        if not given:
            raise RequestError(
                f"PyIceberg's settings have no catalog {name!r}: set PYICEBERG_CATALOG__{name.upper()}__URI or the"
                " like, or write it into .pyiceberg.yaml"
            )
        kind = given.get("type")
        try:
            found = CatalogType(str(kind).lower()) if kind else infer_catalog_type(name, given)
        except ValueError as error:
            raise RequestError(f"the settings of catalog {name!r} cannot be used: {error}") from error
        if found in _NEEDED and not _is_installed(_NEEDED[found][0]):
            raise RequestError(
                f"catalog {name!r} is of the type {found.value}, which needs more than is installed:"
                f" pip install 'pyiceberg[{_NEEDED[found][1]}]'"
            )
        self.place: Final = f"{name} ({'custom' if found is None else found.value}{_address(given.get('uri'))})"
        self._name = name
        self._is_hive = found is CatalogType.HIVE
        self._properties = {**defaults, **cast("dict[str, str]", given)}
        self._clients = PerThread(self._open)

    @property
    def writes_metadata(self) -> bool:
        """Whether PyIceberg itself writes the metadata files: then nobody else deletes the old ones."""
        return isinstance(self._clients.get(), MetastoreCatalog)

    def close(self) -> None:
        """When no thread uses it any more."""
        for client in self._clients.all():
            client.close()

    def load(self, name: TableName) -> StoredTable | None:
        """None: there is no such table. Raises `StorageError` for one that cannot be understood."""
        with self._asking(f"for table {name}"):
            try:
                table = self._clients.get().load_table((*name.namespace, name.name))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
            except (ValidationError, ValueError, RuntimeError) as error:
                raise StorageError(f"table {name} of catalog {self.place} cannot be understood: {error}") from error
        return self._found(name, table.metadata, table.metadata_location)

    def register(self, name: TableName, metadata_location: str) -> StoredTable:
        """A table that begins with this metadata. Raises `TableExists` if there is one of that name."""
        with self._asking(f"to register table {name}"):
            client = self._clients.get()
            with self._clients.turn, suppress(NamespaceAlreadyExistsError):
                client.create_namespace_if_not_exists(name.namespace)
            try:
                table = client.register_table((*name.namespace, name.name), metadata_location)
            except TableAlreadyExistsError as error:
                raise TableExists(f"catalog {self.place} has a table {name} already") from error
            except (ValueError, RuntimeError) as error:
                raise Unavailable(f"table {name} cannot be registered in catalog {self.place}: {error}") from error
        return self._found(name, table.metadata, table.metadata_location)

    def commit(
        self,
        name: TableName,
        base: StoredTable,
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
        io: FileIO,
    ) -> StoredTable:
        """One attempt. Raises `Conflict` if the catalog said no to it, `Unavailable` if the outcome is unknown."""
        with self._asking(f"to commit to table {name}"):
            client = self._clients.get()
            table = StagedTable((*name.namespace, name.name), base.metadata, base.location, io, client)
            try:
                done = client.commit_table(table, tuple(requirements), tuple(updates))
            except (CommitFailedException, NoSuchTableError) as error:
                raise Conflict(f"catalog {self.place} did not take a commit to {name}: {error}") from error
            except ValueError as error:
                raise Unavailable(f"what became of a commit to {name} in {self.place} is unknown: {error}") from error
        return self._found(name, done.metadata, done.metadata_location)

    def rename(self, name: TableName, to: TableName) -> None:
        """A commit that was under way may come first, and cost a try. Raises `Conflict` if that happens all the time,
        `TableExists`, or `RequestError` if the catalog does not rename."""
        with self._asking(f"to rename table {name}"):
            try:
                self._rename(name, to)
            except CommitFailedException as error:
                raise Conflict(f"table {name} in {self.place} changed while it was renamed: {error}") from error
            except TableAlreadyExistsError as error:
                raise TableExists(f"catalog {self.place} has a table {to} already") from error
            except NoSuchTableError:
                return
            except (ValueError, RuntimeError) as error:
                raise RequestError(f"catalog {self.place} does not rename {name} to {to}: {error}") from error

    def _rename(self, name: TableName, to: TableName) -> None:
        for left in reversed(range(_RENAMES)):
            try:
                self._clients.get().rename_table((*name.namespace, name.name), (*to.namespace, to.name))
            except CommitFailedException:
                if not left:
                    raise
            else:
                return

    def _found(self, name: TableName, metadata: TableMetadata, location: str | None) -> StoredTable:
        if not location:
            raise StorageError(
                f"catalog {self.place} does not say where the metadata of {name} is, so nobody can tell whether it has"
                " changed: streams cannot be kept in it"
            )
        return StoredTable(metadata, location)

    def _open(self) -> Catalog:
        try:
            if self._is_hive:
                hive: Catalog = import_module(_HIVE).FencedHive(self._name, **self._properties)
                return hive
            return load_catalog(self._name, **self._properties)
        except (NotInstalledError, ValueError) as error:
            raise RequestError(f"the settings of catalog {self._name!r} cannot be used: {error}") from error

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            yield
        except _temporary_errors() as error:
            raise Unavailable(f"catalog {self.place} was asked {what}: {_sentence(error)}") from error


def _temporary_errors() -> tuple[type[Exception], ...]:
    loaded = ((sys.modules.get(module), name) for module, name in _CLIENT_ERRORS)
    others = tuple(getattr(module, name) for module, name in loaded if module is not None)
    return (RESTError, OSError, WaitingForLockException, *others)


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _address(uri: object) -> str:
    """Without user and password."""
    parts = urlsplit(str(uri or ""))
    return f", {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.scheme else ""
