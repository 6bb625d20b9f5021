"""Versions and subjects are deleted in two steps: hidden, then gone for good.

What is hidden keeps its number and its id, and is still found by its id. What is gone loses both; its object in the
bucket stays, for records that were written with it are still there.
"""

from collections.abc import Iterable, Sequence

import msgspec

from lakestream.errors import RegistryProblem, RegistryRefused
from lakestream.schemas.registry.model import Schema, Subject
from lakestream.schemas.registry.storage.draft import Draft
from lakestream.schemas.registry.storage.rows import (
    SubjectRow,
    VersionRow,
    content_key,
    guid_key,
    referrals,
    referrer_of,
    referrers_of,
    schema_key,
    subject_key,
    use_key,
    uses_of,
)


async def delete_subject(draft: Draft, subject: Subject, row: SubjectRow, *, permanent: bool) -> list[int]:
    """The versions that it was about. Raises `RegistryRefused`."""
    if permanent:
        if row.live:
            raise _refused(
                RegistryProblem.SUBJECT_NOT_DELETED,
                f"Subject '{subject}' was not deleted first before being permanently deleted",
            )
        chosen: Sequence[VersionRow] = row.versions
    else:
        if not row.live:
            raise _refused(
                RegistryProblem.SUBJECT_DELETED,
                f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
            )
        chosen = row.live
    await _delete(draft, subject, row, chosen, permanent=permanent)
    return [each.number for each in chosen]


async def delete_version(draft: Draft, subject: Subject, row: SubjectRow, number: int, *, permanent: bool) -> None:
    version = next((each for each in row.versions if each.number == number), None)
    if version is None:
        raise _refused(RegistryProblem.UNKNOWN_VERSION, f"Version {number} not found.")
    if permanent and not version.is_deleted:
        raise _refused(
            RegistryProblem.VERSION_NOT_DELETED,
            f"Subject '{subject}' Version {number} was not deleted first before being permanently deleted",
        )
    if not permanent and version.is_deleted:
        raise _refused(
            RegistryProblem.VERSION_DELETED,
            f"Subject '{subject}' Version {number} was soft deleted. Set permanent=true to delete permanently",
        )
    await _delete(draft, subject, row, [version], permanent=permanent)


async def _delete(
    draft: Draft, subject: Subject, row: SubjectRow, chosen: Sequence[VersionRow], *, permanent: bool
) -> None:
    numbers = {each.number for each in chosen}
    for each in chosen:
        await _check_unreferenced(draft, subject, each, {version.id for version in chosen})
    if permanent:
        left = tuple(each for each in row.versions if each.number not in numbers)
    else:
        left = tuple(
            msgspec.structs.replace(each, is_deleted=True) if each.number in numbers else each for each in row.versions
        )
    changed = msgspec.structs.replace(row, versions=left)
    if not changed.live:
        changed = msgspec.structs.replace(changed, config=None, mode=None)
    draft.keep(subject_key(subject), changed)
    for id in {each.id for each in chosen}:
        await _unindex(draft, subject, changed, id)


async def _check_unreferenced(draft: Draft, subject: Subject, version: VersionRow, going: Iterable[int]) -> None:
    keys = await draft.keys(referrers_of(subject, version.number))
    found = [place for key in keys if (place := referrer_of(key)).context != subject.context or place.id not in going]
    if found:
        names = ", ".join(str(place.id) for place in found[:10])
        raise _refused(
            RegistryProblem.REFERENCED,
            f"One or more references exist to the schema {{subject={subject},version={version.number}}}:"
            f" schemas {names} refer to it. Delete those first",
        )


async def _unindex(draft: Draft, subject: Subject, row: SubjectRow, id: int) -> None:
    """`row`: as it will be."""
    schema = await draft.get(schema_key(subject.context, id), Schema)
    if schema is None:
        return
    # Whoever gives the schema to another subject meanwhile rewrites this one.
    await draft.get(content_key(subject.context, schema.digest()), int)
    prefix = uses_of(subject.context, id)
    others = [Subject(subject.context, key.removeprefix(prefix)) for key in await draft.keys(prefix)]
    is_used, is_live = False, False
    for each in [subject, *(other for other in others if other != subject)]:
        found = row if each == subject else await draft.get(subject_key(each), SubjectRow)
        versions = [version for version in (found.versions if found else ()) if version.id == id]
        is_used |= bool(versions)
        is_live |= any(not version.is_deleted for version in versions)
        if each == subject and not versions:
            draft.delete(use_key(subject, id))
    if not is_live:
        for key in referrals(subject.context, id, schema):
            draft.delete(key)
    if not is_used:
        draft.delete(schema_key(subject.context, id))
        draft.delete(content_key(subject.context, schema.digest()))
        draft.delete(guid_key(schema.guid(), subject.context))


def _refused(problem: RegistryProblem, message: str) -> RegistryRefused:
    return RegistryRefused(problem, message)
