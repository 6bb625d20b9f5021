"""What may be set for a single group, by Kafka's names, and what a coordinator makes of it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from lakestream.coordination.resetting import is_reset
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


class GroupOption(NamedTuple):
    """`least` and `most` are Kafka's defaults of the bounds that its brokers set for numbers, `usual` that of the
    value; `words` what else may be set. `is_more_than`: the option whose value has to be smaller."""

    name: str
    field: str
    usual: int | str | bool
    documentation: str
    least: int = 0
    most: int = 0
    words: Callable[[str], bool] | None = None
    is_more_than: str = ""

    @property
    def allowed(self) -> str:
        if self.words is None:
            return f"is a whole number, at least {self.least} and at most {self.most}"
        return _ALLOWED[self.name]


_ALLOWED: Final = {
    "share.auto.offset.reset": "is latest, earliest or by_duration: and a duration like PT1H",
    "share.isolation.level": "is read_uncommitted or read_committed",
    "share.renew.acknowledge.enable": "is true or false",
}
_COUNTED: Final = "After how long without a heartbeat a member of"
_ASKED: Final = "How often members of"
OPTIONS: Final = (
    GroupOption(
        "consumer.heartbeat.interval.ms",
        "consumer_heartbeat_interval_ms",
        5_000,
        f"{_ASKED} the newer protocol are asked to be heard of.",
        5_000,
        15_000,
    ),
    GroupOption(
        "consumer.session.timeout.ms",
        "consumer_session_timeout_ms",
        45_000,
        f"{_COUNTED} the newer protocol is out.",
        45_000,
        60_000,
        is_more_than="consumer.heartbeat.interval.ms",
    ),
    GroupOption(
        "share.auto.offset.reset",
        "share_auto_offset_reset",
        "latest",
        "Where a share group begins.",
        words=is_reset,
    ),
    GroupOption(
        "share.delivery.count.limit",
        "share_delivery_limit",
        5,
        "How often a share group delivers a record before it gives it up.",
        2,
        10,
    ),
    GroupOption(
        "share.heartbeat.interval.ms",
        "share_heartbeat_interval_ms",
        5_000,
        f"{_ASKED} a share group are asked to be heard of.",
        5_000,
        15_000,
    ),
    GroupOption(
        "share.isolation.level",
        "share_isolation",
        "read_uncommitted",
        "Whether a share group delivers records of transactions that are open or were aborted.",
        words=lambda text: text in ("read_uncommitted", "read_committed"),
    ),
    GroupOption(
        "share.partition.max.record.locks",
        "share_max_record_locks",
        2_000,
        "How many records of a partition may be on their way in a share group.",
        100,
        4_000,
    ),
    GroupOption(
        "share.record.lock.duration.ms",
        "share_record_lock_ms",
        30_000,
        "For so long a member of a share group has a record for itself.",
        15_000,
        60_000,
    ),
    GroupOption(
        "share.renew.acknowledge.enable",
        "share_renewal",
        True,
        "Whether members of a share group may renew the locks of what they have.",
        words=lambda text: text in ("true", "false"),
    ),
    GroupOption(
        "share.session.timeout.ms",
        "share_session_timeout_ms",
        45_000,
        f"{_COUNTED} a share group is out.",
        45_000,
        60_000,
        is_more_than="share.heartbeat.interval.ms",
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
            raise InvalidSetting(f"{name} {why}: those of a group are {', '.join(_BY_NAME)}")
        if not _fits(option, text.strip(), settings):
            raise InvalidSetting(f"{name} {option.allowed}, not {text!r}")
    found = applied(settings, named)
    for option in OPTIONS:
        if option.is_more_than:
            other = _BY_NAME[option.is_more_than]
            if getattr(found, option.field) <= getattr(found, other.field):
                raise InvalidSetting(f"{option.name} is more than {other.name}")


def _fits(option: GroupOption, text: str, settings: GroupSettings) -> bool:
    if option.words is not None:
        return option.words(text)
    if not text.isascii() or not text.isdigit():
        return False
    # An operator's default may be less than Kafka's bound.
    least = min(option.least, int(getattr(settings, option.field)))
    return least <= int(text) <= option.most


def _value(option: GroupOption, text: str) -> int | str | bool:
    if option.words is None:
        return int(text)
    return text.strip() == "true" if isinstance(option.usual, bool) else text.strip()


def applied(settings: GroupSettings, named: Named) -> GroupSettings:
    """The settings that hold for a group with these of its own. One that another version stored means nothing."""
    known = [(_BY_NAME[name], text) for name, text in named.items() if name in _BY_NAME]
    own: dict[str, Any] = {option.field: _value(option, text) for option, text in known}
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

    @property
    def usual(self) -> GroupSettings:
        """Those of a group that has none of its own."""
        return self._settings

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
