"""What members of share groups say and hear about records. Data only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import NamedTuple

from lakestream.coordination.settings import GroupSettings
from lakestream.errors import LakestreamError
from lakestream.model import StreamPartition
from lakestream.objects import Buffer
from lakestream.stream import TopicKey


class AckType(IntEnum):
    """By Kafka's numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AckError(Enum):
    """Why a partition's acknowledgements were refused, all of them."""

    INVALID_REQUEST = auto()
    """They do not fit together, or are of records that nobody was given."""
    INVALID_STATE = auto()
    """Not with this member, or not any more."""


class SessionError(Enum):
    NOT_FOUND = auto()
    INVALID_EPOCH = auto()
    LIMIT_REACHED = auto()
    INVALID_REQUEST = auto()


class Ack(NamedTuple):
    """Offsets [first, last], with one type for all or one for each."""

    first: int
    last: int
    types: Sequence[int]


class Acquired(NamedTuple):
    """Offsets [first, end) that a member was given, for the `deliveries`-th time."""

    first: int
    end: int
    deliveries: int


class ShareRules(NamedTuple):
    """What holds in a group."""

    lock_ms: int
    most_deliveries: int
    most_in_flight: int
    renews: bool

    @classmethod
    def of(cls, settings: GroupSettings) -> "ShareRules":
        return cls(
            settings.share_record_lock_ms,
            settings.share_delivery_limit,
            settings.share_max_record_locks,
            settings.share_renewal,
        )


Asked = tuple[TopicKey, int]
"""A partition as the client named it."""


@dataclass(frozen=True, slots=True)
class ShareFetchRequest:
    """`acks`: of partitions, also of such as are not asked for. `is_exact`: no more than `max_records`, even if that
    ends within a batch."""

    group: str
    member_id: str
    session_epoch: int
    added: Sequence[Asked]
    forgotten: Sequence[Asked]
    acks: Mapping[Asked, Sequence[Ack]]
    max_wait_ms: int
    max_bytes: int
    max_records: int
    is_exact: bool = False
    renews: bool = False
    is_turned_away: bool = False
    """The broker is being stopped: it takes acknowledgements, and gives no records."""


@dataclass(frozen=True, slots=True)
class AckOutcome:
    """None: well."""

    error: AckError | LakestreamError | None
    message: str = ""


@dataclass(slots=True)
class SharedRecords:
    """Of one partition: `parts` joined are whole batches that have the acquired records, and may have others."""

    asked: Asked
    parts: Sequence[Buffer] = ()
    acquired: Sequence[Acquired] = ()
    error: LakestreamError | None = None
    ack: AckOutcome | None = None


@dataclass(frozen=True, slots=True)
class ShareFetched:
    error: SessionError | None = None
    message: str = ""
    lock_ms: int = 0
    partitions: Sequence[SharedRecords] = ()


class LocatedBatch(NamedTuple):
    """A batch of what was read: its offsets [first, end), where it lies in the parts, and whether members may have
    its records."""

    first: int
    end: int
    part: int
    position: int
    length: int
    is_visible: bool


class GroupPartition(NamedTuple):
    """How far a group is. None: nobody has asked for it yet. `lag`: records not done with."""

    partition: StreamPartition
    start: int | None
    lag: int = -1
