"""Where the schemas of values come from: this cluster's registry, or one of somebody else."""

from typing import Final, NamedTuple, Protocol

from lakestream.table.shape import ValueSchema


class SubjectVersion(NamedTuple):
    """`is_deleted`: hidden, yet values may have been written with it."""

    number: int
    schema_id: int
    is_deleted: bool = False


class SchemaSource(Protocol):
    """Subjects may be qualified (`:.context:name`). Every schema can be kept for ever with the rows that need it: it
    has all that it refers to. Raises `RegistryUnavailable` if nobody can say now, and never for a schema that is odd:
    what it means is asked of the mapping."""

    async def by_id(self, schema_id: int, subject: str) -> ValueSchema | None:
        """The schema with the id in the context of the subject; which subjects have it does not matter. None: nobody
        knows it."""
        ...

    async def latest(self, subject: str) -> ValueSchema | None:
        """The newest version of the subject that is not deleted. None: there is none."""
        ...

    async def versions(self, subject: str) -> tuple[SubjectVersion, ...]:
        """In order, also those that are deleted but not for good. Empty: there is no such subject."""
        ...


class NoSchemas:
    """Implements `SchemaSource` where there is no registry."""

    async def by_id(self, schema_id: int, subject: str) -> ValueSchema | None:
        return None

    async def latest(self, subject: str) -> ValueSchema | None:
        return None

    async def versions(self, subject: str) -> tuple[SubjectVersion, ...]:
        return ()


NO_SCHEMAS: Final = NoSchemas()
