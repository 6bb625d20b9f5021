"""Records of share groups: given to members one by one, by whichever broker is asked, acknowledged and given again."""

from lakestream.coordination.shares.model import (
    Ack,
    AckError,
    AckOutcome,
    Acquired,
    Asked,
    GroupPartition,
    SessionError,
    SharedRecords,
    ShareFetched,
    ShareFetchRequest,
)
from lakestream.coordination.shares.offsets import ShareOffsets
from lakestream.coordination.shares.shares import ShareGroups

__all__ = [
    "Ack",
    "AckError",
    "AckOutcome",
    "Acquired",
    "Asked",
    "GroupPartition",
    "SessionError",
    "ShareFetchRequest",
    "ShareFetched",
    "ShareGroups",
    "ShareOffsets",
    "SharedRecords",
]
