"""What may be set for a single group, by Kafka's names, and what a coordinator makes of it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from lakestream.coordination.settings import GroupSettings
from lakestream.errors import InvalidSetting
from lakestream.metadata.groups.settings import (
    GroupSettingsAt,
    Named,
    change_group_settings,
    read_group_settings,
)
from lakestream.metadata.store import Store

_AGAIN_S: Final = 2.0
"""How old a coordinator takes these settings to be at the most."""
_MOST_GROUPS: Final = 10_000
SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"


class GroupOption(NamedTuple):
    """`least` and `most` are Kafka's defaults of the bounds that its brokers set, `usual` that of the value."""

    name: str
    field: str
    usual: int
    least: int
    most: int
    documentation: str


OPTIONS: Final = (
    GroupOption(
        HEARTBEAT,
        "consumer_heartbeat_interval_ms",
        5_000,
        5_000,
        15_000,
        "How often members of the newer protocol are asked to be heard of.",
    ),
    GroupOption(
        SESSION,
        "consumer_session_timeout_ms",
        45_000,
        45_000,
        60_000,
        "After how long without a heartbeat a member of the newer protocol is out.",
    ),
)
_BY_NAME: Final = {option.name: option for option in OPTIONS}
_OTHERS: Final = ("consumer.", "share.", "streams.")


def check_settings(settings: GroupSettings, named: Named) -> None:
    """Raises `InvalidSetting` with a sentence."""
    for name, text in named.items():
        option = _BY_NAME.get(name)
        if option is None:
            why = "is not served" if name.startswith(_OTHERS) else "is no setting of a group"
            raise InvalidSetting(f"{name} {why}: those of a group are {HEARTBEAT} and {SESSION}")
        if not text.strip().isascii() or not text.strip().isdigit():
            raise InvalidSetting(f"{name} is a whole number of milliseconds, not {text!r}")
        least, most = min(option.least, getattr(settings, option.field)), option.most
        if not least <= int(text) <= most:
            raise InvalidSetting(f"{name} is at least {least} and at most {most}, not {int(text)}")
    found = applied(settings, named)
    if found.consumer_session_timeout_ms <= found.consumer_heartbeat_interval_ms:
        raise InvalidSetting(f"{SESSION} is more than {HEARTBEAT}")


def applied(settings: GroupSettings, named: Named) -> GroupSettings:
    """The settings that hold for a group with these of its own. One that another version stored means nothing."""
    own = {_BY_NAME[name].field: int(text) for name, text in named.items() if name in _BY_NAME}
    return msgspec.structs.replace(settings, **own)


class ConfiguredGroups:
    """The settings of all groups, read again now and then."""

    def __init__(self, store: Store, settings: GroupSettings) -> None:
        self._store = store
        self._settings = settings
        self._known: GroupSettingsAt | None = None
        self._made: dict[str, GroupSettings] = {}
        self._read_s = float("-inf")
        self._lock = asyncio.Lock()

    async def of(self, group: str) -> GroupSettings:
        """The same object while nothing has changed."""
        async with self._lock:
            now_s = asyncio.get_running_loop().time()
            if self._known is None or now_s - self._read_s > _AGAIN_S:
                self._take(await read_group_settings(self._store), now_s)
        return self._made.get(group, self._settings)

    async def named(self) -> Mapping[str, Named]:
        """As they are now, by group."""
        return (await read_group_settings(self._store)).by_group

    async def change(self, group: str, change: Callable[[Named], Named], *, dry_run: bool) -> None:
        """Raises `InvalidSetting`, and what `change` raises."""

        def checked(present: Named) -> Named:
            wanted = change(present)
            check_settings(self._settings, wanted)
            return wanted

        known = await read_group_settings(self._store)
        if group not in known.by_group and len(known.by_group) >= _MOST_GROUPS:
            raise InvalidSetting(f"{_MOST_GROUPS} groups have settings of their own, and no more may")
        if dry_run:
            checked(known.by_group.get(group, {}))
            return
        changed = await change_group_settings(self._store, group, checked)
        self._take(changed, asyncio.get_running_loop().time())

    def _take(self, known: GroupSettingsAt, now_s: float) -> None:
        self._read_s = now_s
        if self._known is None or known.version >= self._known.version:
            if self._known is None or known.version > self._known.version:
                self._made = {group: applied(self._settings, named) for group, named in known.by_group.items()}
            self._known = known
