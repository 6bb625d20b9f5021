"""Requests of the Iceberg REST protocol that PyIceberg has no model for, or only the client's half."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate


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


class RenameTable(Message):
    source: Identifier
    destination: Identifier
