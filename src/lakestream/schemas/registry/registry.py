"""The registry as doors see it: every call says who asks.

Any number of processes serve it: what is read is always what the metadata store has now, and a change that somebody
else's change has overtaken is made again from what is there.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from lakestream.access import Authorizer, Operation, Principal
from lakestream.errors import Conflict, RegistryProblem, RegistryRefused
from lakestream.metadata.store import Store
from lakestream.objects import ObjectStore
from lakestream.runtime import Runtime
from lakestream.schemas.registry import deleting, reading
from lakestream.schemas.registry.formats.format import ParsedSchema
from lakestream.schemas.registry.model import (
    DEFAULT_CONTEXT,
    Mode,
    Registered,
    Schema,
    Subject,
    SubjectConfig,
)
from lakestream.schemas.registry.parsing import Parser
from lakestream.schemas.registry.references import dependencies_of
from lakestream.schemas.registry.registering import Registering, incompatibilities, prepare
from lakestream.schemas.registry.rights import SubjectRights
from lakestream.schemas.registry.scopes import (
    DEFAULT_LEVEL,
    change_config,
    change_mode,
    check_writable,
    effective,
    own_row,
)
from lakestream.schemas.registry.storage.draft import Draft, KeptRow
from lakestream.schemas.registry.storage.kept import KeptSchemas
from lakestream.schemas.registry.storage.rows import SchemaId, SubjectRow, content_key, subject_key

_ATTEMPTS: Final = 50
_PAUSE_MS: Final = 20
T = TypeVar("T")


class SchemaRegistry:
    """Raises `RegistryRefused`, `NotAuthorized`, `Unavailable`."""

    def __init__(self, store: Store, objects: ObjectStore, runtime: Runtime, authorizer: Authorizer) -> None:
        self._store = store
        self._runtime = runtime
        self._rights = SubjectRights(authorizer)
        self._kept = KeptSchemas(store, objects, runtime)
        self._parser = Parser(runtime)
        self._registering = Registering(store, self._kept, self._parser)
        self._turn = asyncio.Lock()
        self._unkept: dict[str, KeptRow] = {}
        """What this process has changed, and the bucket has not been told of yet."""

    # Schemas of subjects

    async def register(
        self,
        principal: Principal,
        subject: Subject,
        schema: Schema,
        *,
        normalize: bool | None = None,
        id: int | None = None,
        version: int | None = None,
    ) -> Registered:
        """The version that the schema is. The same as before if the subject has it already. `id` and `version` are for
        subjects in mode IMPORT."""
        self._rights.check(principal, Operation.WRITE, subject)
        _check_name(subject)
        reserved: dict[str, int] = {}

        async def change(draft: Draft) -> Registered:
            return await self._registering.attempt(
                draft, subject, schema, normalize=normalize, id=id, version=version, reserved=reserved
            )

        return await self._changed(change)

    async def lookup(
        self,
        principal: Principal,
        subject: Subject,
        schema: Schema,
        *,
        normalize: bool | None = None,
        deleted: bool = False,
    ) -> Registered:
        self._rights.check(principal, Operation.READ, subject)
        draft = Draft(self._store)
        row = await reading.known_subject(draft, subject, deleted=deleted)
        wanted = (await effective(draft, subject)).normalize if normalize is None else normalize
        candidate = await prepare(draft, self._parser, subject.context, schema, normalize=wanted)
        id = await draft.get(content_key(subject.context, candidate.schema.digest()), int)
        versions = [each for each in (row.versions if deleted else row.live) if each.id == id]
        if not versions:
            raise reading.unknown_schema()
        return await reading.registered(draft, subject, versions[-1])

    async def check(
        self,
        principal: Principal,
        subject: Subject,
        schema: Schema,
        *,
        number: int | None = None,
        normalize: bool | None = None,
    ) -> list[str]:
        """What keeps the schema from being registered, as far as compatibility goes. `number`: of the only version to
        compare with; None: those that the subject's level says, if there are any."""
        self._rights.check(principal, Operation.READ, subject)
        draft = Draft(self._store)
        now = await effective(draft, subject)
        if number is None:
            row = await draft.get(subject_key(subject), SubjectRow)
            versions = [] if row is None else row.live
        else:
            versions = [reading.pick(await reading.known_subject(draft, subject), number, deleted=False)]
        wanted = now.normalize if normalize is None else normalize
        candidate = await prepare(draft, self._parser, subject.context, schema, normalize=wanted)
        return await incompatibilities(draft, self._parser, candidate, subject, versions, now.level)

    async def subjects(
        self, principal: Principal, context: str | None, prefix: str = "", *, deleted: bool = False
    ) -> list[Subject]:
        """`context`: None for those of all contexts, by their qualified names."""
        rows = await reading.subject_rows(self._store, context, prefix)
        found = [subject for subject, row in rows if (row.versions if deleted else row.live)]
        return self._rights.allowed(principal, Operation.DESCRIBE, found)

    async def deleted_subjects(self, principal: Principal, context: str | None, prefix: str = "") -> list[Subject]:
        """Those that have deleted versions only."""
        rows = await reading.subject_rows(self._store, context, prefix)
        found = [subject for subject, row in rows if row.versions and not row.live]
        return self._rights.allowed(principal, Operation.DESCRIBE, found)

    async def versions(
        self, principal: Principal, subject: Subject, *, deleted: bool = False, only_deleted: bool = False
    ) -> list[int]:
        self._rights.check(principal, Operation.DESCRIBE, subject)
        row = await reading.known_subject(Draft(self._store), subject, deleted=deleted or only_deleted)
        chosen = row.versions if deleted or only_deleted else row.live
        return [each.number for each in chosen if each.is_deleted or not only_deleted]

    async def version(
        self, principal: Principal, subject: Subject, number: int, *, deleted: bool = False
    ) -> Registered:
        self._rights.check(principal, Operation.READ, subject)
        draft = Draft(self._store)
        row = await reading.known_subject(draft, subject, deleted=deleted)
        return await reading.registered(draft, subject, reading.pick(row, number, deleted=deleted))

    async def with_metadata(
        self, principal: Principal, subject: Subject, wanted: dict[str, str], *, deleted: bool = False
    ) -> Registered:
        """The newest version whose metadata has these properties."""
        self._rights.check(principal, Operation.READ, subject)
        draft = Draft(self._store)
        row = await reading.known_subject(draft, subject, deleted=deleted)
        for each in reversed(row.versions if deleted else row.live):
            found = await reading.registered(draft, subject, each)
            properties = (found.schema.metadata or {}).get("properties") or {}
            if all(properties.get(key) == value for key, value in wanted.items()):
                return found
        raise reading.unknown_schema()

    async def referrers(self, principal: Principal, subject: Subject, number: int) -> list[SchemaId]:
        self._rights.check(principal, Operation.DESCRIBE, subject)
        draft = Draft(self._store)
        version = reading.pick(await reading.known_subject(draft, subject), number, deleted=False)
        return await reading.referrers(draft, subject, version.number)

    async def every(
        self, principal: Principal, context: str | None, prefix: str = "", *, deleted: bool, latest: bool
    ) -> list[Registered]:
        rows = dict(await reading.subject_rows(self._store, context, prefix))
        allowed = self._rights.allowed(principal, Operation.READ, rows)
        chosen = [(subject, rows[subject]) for subject in allowed]
        return await reading.all_registered(Draft(self._store), chosen, deleted=deleted, latest=latest)

    async def delete_subject(self, principal: Principal, subject: Subject, *, permanent: bool) -> list[int]:
        self._rights.check(principal, Operation.DELETE, subject)

        async def change(draft: Draft) -> list[int]:
            check_writable(subject, (await effective(draft, subject)).mode)
            row = await reading.known_subject(draft, subject, deleted=True)
            return await deleting.delete_subject(draft, subject, row, permanent=permanent)

        return await self._changed(change)

    async def delete_version(self, principal: Principal, subject: Subject, number: int, *, permanent: bool) -> int:
        """Its number."""
        self._rights.check(principal, Operation.DELETE, subject)

        async def change(draft: Draft) -> int:
            check_writable(subject, (await effective(draft, subject)).mode)
            row = await reading.known_subject(draft, subject, deleted=True)
            chosen = reading.pick(row, number, deleted=permanent or number != reading.LATEST)
            await deleting.delete_version(draft, subject, row, chosen.number, permanent=permanent)
            return chosen.number

        return await self._changed(change)

    # Schemas by id

    async def by_id(self, principal: Principal, context: str, id: int) -> Schema:
        self._rights.check_any(principal, Operation.READ, f"schema {id}")
        draft = Draft(self._store)
        schema = await reading.schema_at(draft, context, id)
        users = [subject for subject, _ in await reading.users_of(draft, context, id, deleted=True)]
        if not self._rights.allowed(principal, Operation.READ, users):
            raise reading.unknown_schema(id)
        return schema

    async def by_guid(self, principal: Principal, guid: str) -> tuple[SchemaId, Schema]:
        self._rights.check_any(principal, Operation.READ, f"schema {guid}")
        place = await reading.place_of_guid(Draft(self._store), guid)
        return place, await self.by_id(principal, place.context, place.id)

    async def users(
        self, principal: Principal, context: str, id: int, *, deleted: bool = False
    ) -> list[tuple[Subject, int]]:
        """The subjects that have this schema, each with its version."""
        await self.by_id(principal, context, id)
        found = await reading.users_of(Draft(self._store), context, id, deleted=deleted)
        allowed = set(self._rights.allowed(principal, Operation.DESCRIBE, [subject for subject, _ in found]))
        return [(subject, version.number) for subject, version in found if subject in allowed]

    async def parsed(self, context: str, schema: Schema) -> ParsedSchema:
        """Of a schema that a call of this registry has returned."""
        needed = await dependencies_of(Draft(self._store), context, schema)
        return await self._parser.parse(schema.type, schema.text, needed)

    async def contexts(self, principal: Principal) -> list[str]:
        self._rights.check_any(principal, Operation.DESCRIBE, "contexts")
        return sorted({DEFAULT_CONTEXT, *await reading.contexts(self._store)})

    # Settings. A subject without a name is its context; that of the default context is global.

    async def config(self, principal: Principal, subject: Subject, *, inherited: bool) -> SubjectConfig:
        self._rights.check(principal, Operation.DESCRIBE_CONFIGS, subject)
        draft = Draft(self._store)
        row = await own_row(draft, subject)
        if row is not None and row.config is not None:
            return row.config
        if not inherited and subject != Subject(DEFAULT_CONTEXT, ""):
            raise RegistryRefused(
                RegistryProblem.NO_CONFIG, f"Subject '{subject}' does not have subject-level compatibility configured"
            )
        now = await effective(draft, subject)
        return SubjectConfig(now.level, now.normalize or None)

    async def set_config(self, principal: Principal, subject: Subject, config: SubjectConfig) -> None:
        self._rights.check(principal, Operation.ALTER_CONFIGS, subject)

        async def change(draft: Draft) -> None:
            check_writable(subject, (await effective(draft, subject)).mode)
            await change_config(draft, subject, config)

        await self._changed(change)

    async def delete_config(self, principal: Principal, subject: Subject) -> SubjectConfig:
        """What it was."""
        self._rights.check(principal, Operation.ALTER_CONFIGS, subject)

        async def change(draft: Draft) -> SubjectConfig:
            row = await own_row(draft, subject)
            if subject.name and (row is None or row.config is None):
                raise reading.unknown_subject(subject)
            return await change_config(draft, subject, None) or SubjectConfig(DEFAULT_LEVEL)

        return await self._changed(change)

    async def mode(self, principal: Principal, subject: Subject, *, inherited: bool) -> Mode:
        self._rights.check(principal, Operation.DESCRIBE_CONFIGS, subject)
        draft = Draft(self._store)
        row = await own_row(draft, subject)
        if row is not None and row.mode is not None:
            return row.mode
        if not inherited and subject != Subject(DEFAULT_CONTEXT, ""):
            raise RegistryRefused(
                RegistryProblem.NO_MODE, f"Subject '{subject}' does not have subject-level mode configured"
            )
        return (await effective(draft, subject)).mode

    async def set_mode(self, principal: Principal, subject: Subject, mode: Mode, *, force: bool) -> None:
        """IMPORT only where there are no versions yet, unless it is forced."""
        self._rights.check(principal, Operation.ALTER_CONFIGS, subject)

        async def change(draft: Draft) -> None:
            before = (await effective(draft, subject)).mode
            if mode is Mode.IMPORT and before is not Mode.IMPORT and not force and await self._has_versions(subject):
                raise RegistryRefused(
                    RegistryProblem.NOT_PERMITTED, "Cannot import since found existing subjects: set force=true"
                )
            await change_mode(draft, subject, mode)

        await self._changed(change)

    async def delete_mode(self, principal: Principal, subject: Subject) -> Mode:
        """What it was."""
        self._rights.check(principal, Operation.ALTER_CONFIGS, subject)

        async def change(draft: Draft) -> Mode:
            row = await own_row(draft, subject)
            if subject.name and (row is None or row.mode is None):
                raise reading.unknown_subject(subject)
            return await change_mode(draft, subject, None) or Mode.READWRITE

        return await self._changed(change)

    async def _has_versions(self, subject: Subject) -> bool:
        rows = await reading.subject_rows(self._store, subject.context, subject.name)
        return any(row.live for found, row in rows if not subject.name or found == subject)

    async def _changed(self, change: Callable[[Draft], Awaitable[T]]) -> T:
        """Made anew whenever somebody else was first; those of this process who were not take turns then."""
        done, result = await self._tried(change)
        if done:
            return result
        async with self._turn:
            for attempt in range(_ATTEMPTS):
                done, result = await self._tried(change)
                if done:
                    return result
                await asyncio.sleep(self._runtime.random.random() * _PAUSE_MS * min(attempt, 10) / 1000)
        raise Conflict("others change the schema registry all the time: try again")

    async def _tried(self, change: Callable[[Draft], Awaitable[T]]) -> tuple[bool, T]:
        """Whoever is answered knows that the bucket has it, too; also who comes again because it did not answer."""
        draft = Draft(self._store)
        result = await change(draft)
        done = await draft.commit()
        if done:
            self._unkept |= draft.kept
            for key, row in list(self._unkept.items()):
                await self._kept.keep_row(key, row)
                if self._unkept.get(key) is row:
                    del self._unkept[key]
        return done, result


def _check_name(subject: Subject) -> None:
    if not subject.name:
        raise RegistryRefused(RegistryProblem.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid.")
