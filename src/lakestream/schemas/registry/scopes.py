"""Settings of subjects: their own, else their context's, else those of the default context, else ours."""

from typing import Final

import msgspec

from lakestream.errors import RegistryProblem, RegistryRefused
from lakestream.schemas.registry.model import DEFAULT_CONTEXT, Level, Mode, Subject, SubjectConfig
from lakestream.schemas.registry.storage.draft import Draft
from lakestream.schemas.registry.storage.rows import ContextRow, SubjectRow, context_key, subject_key

DEFAULT_LEVEL: Final = Level.BACKWARD


class Effective(msgspec.Struct, frozen=True):
    level: Level
    normalize: bool
    mode: Mode


async def effective(draft: Draft, subject: Subject) -> Effective:
    contexts = [await draft.get(context_key(subject.context), ContextRow)]
    if subject.context != DEFAULT_CONTEXT:
        contexts.append(await draft.get(context_key(DEFAULT_CONTEXT), ContextRow))
    rows = [await own_row(draft, subject), *contexts] if subject.name else contexts
    configs = [row.config for row in rows if row is not None and row.config is not None]
    modes = [row.mode for row in rows if row is not None and row.mode is not None]
    overriding = [mode for mode in modes if mode is Mode.READONLY_OVERRIDE]
    return Effective(
        next((config.level for config in configs if config.level is not None), DEFAULT_LEVEL),
        next((config.normalize for config in configs if config.normalize is not None), False),
        next(iter([*overriding, *modes]), Mode.READWRITE),
    )


async def own_row(draft: Draft, subject: Subject) -> SubjectRow | ContextRow | None:
    if subject.name:
        return await draft.get(subject_key(subject), SubjectRow)
    return await draft.get(context_key(subject.context), ContextRow)


async def change_config(draft: Draft, subject: Subject, config: SubjectConfig | None) -> SubjectConfig | None:
    """What it was. None of `config` takes its own settings away; what the given one leaves open stays."""
    row = await own_row(draft, subject) or _empty(subject)
    before = row.config
    if config is not None and before is not None:
        level = before.level if config.level is None else config.level
        config = SubjectConfig(level, before.normalize if config.normalize is None else config.normalize)
    draft.keep(_key(subject), msgspec.structs.replace(row, config=config))
    return before


async def change_mode(draft: Draft, subject: Subject, mode: Mode | None) -> Mode | None:
    """What it was. None of `mode` takes its own away."""
    row = await own_row(draft, subject) or _empty(subject)
    before = row.mode
    draft.keep(_key(subject), msgspec.structs.replace(row, mode=mode))
    return before


def check_writable(subject: Subject, mode: Mode) -> None:
    if mode.is_read_only:
        raise RegistryRefused(RegistryProblem.NOT_PERMITTED, f"Subject {subject} is in read-only mode")


def _key(subject: Subject) -> str:
    return subject_key(subject) if subject.name else context_key(subject.context)


def _empty(subject: Subject) -> SubjectRow | ContextRow:
    return SubjectRow() if subject.name else ContextRow()
