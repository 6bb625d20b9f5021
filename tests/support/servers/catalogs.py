"""Catalogs of somebody else to keep the tables of streams in, each a real one: SQLite, PostgreSQL, our own door as a
plain REST catalog, moto's Glue, a Hive Metastore, Nessie."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError

from lakestream.catalog.external.client import CatalogClient
from lakestream.catalog.external.hive import FencedHive
from lakestream.catalog.external.tables import ExternalTables
from lakestream.metadata.store import Store
from lakestream.runtime import Runtime
from support.tables.files import open_door
from support.worlds.memory import Fuse

NAME = "outside"
BUCKET = "lake"
"""On the server that the fixtures `aws_address` and `nessie_uri` of `conftest` share."""


def own_folder() -> str:
    """In that bucket, for a cluster of processes, which keeps what it is started on to itself."""
    return f"{BUCKET}/{uuid4().hex}"


def variables(properties: Mapping[str, str], name: str = NAME) -> dict[str, str]:
    """The environment in which PyIceberg knows a catalog by its name."""
    return {
        f"PYICEBERG_CATALOG__{name.upper()}__{re.sub('-', '_', re.sub('[.]', '__', key)).upper()}": value
        for key, value in properties.items()
    }


def step_by_step(tables: ExternalTables, fuse: Fuse) -> None:
    """Every call to the catalog is a step of the fuse."""
    commits: Any = tables.commits
    ask = commits.ask

    async def stepped(work: Callable[[], Any]) -> Any:
        await fuse.step("before ask")
        answer = await ask(work)
        await fuse.step("after ask")
        return answer

    commits.ask = stepped


@dataclass(frozen=True)
class Place:
    """`properties` are PyIceberg's. `io` is what files need beside that."""

    properties: Mapping[str, str]
    bucket_url: str
    io: Mapping[str, str]

    def tables(self, store: Store, runtime: Runtime) -> ExternalTables:
        with patch.dict(os.environ, variables(self.properties)):
            client = CatalogClient(NAME, self.io)
        return ExternalTables(store, self.bucket_url, runtime, client, self.io)

    def outsider(self) -> Catalog:
        """The same catalog as any other engine has it; a database knows its tables by the catalog's name too.
        PyIceberg's own client asks a Metastore for tables in a way that Hive 4 does not know any more."""
        properties = {**self.io, **self.properties}
        if properties["type"] == "hive":
            return FencedHive(NAME, **properties)
        return load_catalog(NAME, **properties)

    @contextmanager
    def emptied(self) -> Iterator["Place"]:
        """For a server that tests share."""
        catalog = self.outsider()
        try:
            tables = [name for namespace in catalog.list_namespaces() for name in catalog.list_tables(namespace)]
        except NoSuchNamespaceError:
            tables = []
        for name in tables:
            catalog.drop_table(name)
        catalog.close()
        yield self


def sql_place(folder: Path, uri: str = "") -> Place:
    uri = uri or f"sqlite:///{folder}/catalog.db"
    properties = {"type": "sql", "uri": uri, "warehouse": f"file://{folder}/warehouse"}
    return Place(properties, f"file://{folder}/bucket", {})


def hive_place(folder: Path, uri: str) -> Place:
    properties = {"type": "hive", "uri": uri, "warehouse": f"file://{folder}/warehouse"}
    return Place(properties, f"file://{folder}/bucket", {})


def rest_place(folder: Path, uri: str) -> Place:
    return Place({"type": "rest", "uri": uri}, f"file://{folder}/bucket", {})


def glue_place(folder: Path, address: str) -> Place:
    properties = {
        "type": "glue",
        "glue.endpoint": address,
        "glue.region": "us-east-1",
        "glue.access-key-id": "test",
        "glue.secret-access-key": "test",
        "warehouse": f"file://{folder}/warehouse",
    }
    return Place(properties, f"file://{folder}/bucket", {})


def nessie_place(uri: str, s3: str, bucket: str) -> Place:
    io = {
        "s3.endpoint": s3,
        "s3.access-key-id": "test",
        "s3.secret-access-key": "test",
        "s3.region": "us-east-1",
    }
    return Place({"type": "rest", "uri": uri}, f"s3://{bucket}", io)


EXTERNAL = ("sql", "postgres", "rest", "glue", "hive", "nessie")
QUICK = ("sql", "postgres")


@contextmanager
def external_place(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    match kind:
        case "sql":
            yield sql_place(folder)
        case "rest":
            with open_door(folder / "door", locations=[f"file://{folder}/bucket"]) as door:
                yield rest_place(folder, door.uri)
        case "postgres":
            with sql_place(folder, request.getfixturevalue("postgres_uri")).emptied() as place:
                yield place
        case "hive":
            with hive_place(folder, request.getfixturevalue("hive_uri")).emptied() as place:
                yield place
        case "glue":
            with glue_place(folder, request.getfixturevalue("aws_address")).emptied() as place:
                yield place
        case _:
            uri, aws = request.getfixturevalue("nessie_uri"), request.getfixturevalue("aws_address")
            with nessie_place(uri, aws, BUCKET).emptied() as place:
                yield place
