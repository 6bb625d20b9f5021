"""Requests of the Iceberg REST protocol that PyIceberg has no model for, or only the client's half."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.view.metadata import ViewVersion

from lakestream.catalog.engines.views.changes import ViewUpdate


class Message(BaseModel):
    model_config = ConfigDict(populate_by_name=True, frozen=True, arbitrary_types_allowed=True)


class Identifier(Message):
    namespace: list[str]
    name: str


class CreateNamespace(Message):
    namespace: list[str]
    properties: dict[str, str] = {}


class UpdateProperties(Message):
    removals: list[str] = []
    updates: dict[str, str] = {}


class CreateTable(Message):
    name: str
    location: str | None = None
    table_schema: Annotated[Schema, Field(alias="schema")]
    partition_spec: Annotated[PartitionSpec | None, Field(alias="partition-spec")] = None
    write_order: Annotated[SortOrder | None, Field(alias="write-order")] = None
    stage_create: Annotated[bool, Field(alias="stage-create")] = False
    properties: dict[str, str] = {}


class CommitTable(Message):
    requirements: list[TableRequirement] = []
    updates: list[TableUpdate] = []


class CommitOneOfMany(CommitTable):
    identifier: Identifier


class CommitTransaction(Message):
    table_changes: Annotated[list[CommitOneOfMany], Field(alias="table-changes", min_length=1)]


class Rename(Message):
    source: Identifier
    destination: Identifier


class RegisterTable(Message):
    name: str
    metadata_location: Annotated[str, Field(alias="metadata-location")]
    overwrite: bool = False


class RegisterView(Message):
    name: str
    metadata_location: Annotated[str, Field(alias="metadata-location")]


class CreateView(Message):
    name: str
    location: str | None = None
    view_schema: Annotated[Schema, Field(alias="schema")]
    view_version: Annotated[ViewVersion, Field(alias="view-version")]
    properties: dict[str, str] = {}


class AssertViewUuid(Message):
    type: Literal["assert-view-uuid"]
    uuid: UUID


class CommitView(Message):
    requirements: list[AssertViewUuid] = []
    updates: list[ViewUpdate] = []
