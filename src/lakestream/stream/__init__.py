"""What every front door calls: append, fetch, offsets, topics. No wire format is known here."""

from lakestream.metadata.log.enlistment import InTransaction
from lakestream.metadata.log.transactions import AbortedRange
from lakestream.stream.appending.flush import Appended
from lakestream.stream.budget import MemoryBudget
from lakestream.stream.fetching.fetch import Fetched, FetchPartition
from lakestream.stream.fetching.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAt
from lakestream.stream.quotas import QuotaChange
from lakestream.stream.requests import FetchRequest, KnownProducer, OffsetQuery, ProducedBatch, RecordsDelete, TopicKey
from lakestream.stream.rights import FoundTopics
from lakestream.stream.settings import StreamSettings
from lakestream.stream.streams import AppendOutcome, Streams

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AbortedRange",
    "AppendOutcome",
    "Appended",
    "FetchPartition",
    "FetchRequest",
    "Fetched",
    "FoundTopics",
    "InTransaction",
    "KnownProducer",
    "MemoryBudget",
    "OffsetAt",
    "OffsetQuery",
    "ProducedBatch",
    "QuotaChange",
    "RecordsDelete",
    "StreamSettings",
    "Streams",
    "TopicKey",
]
