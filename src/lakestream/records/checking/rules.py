"""What a topic takes from producers, and how it keeps it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lakestream.records.compression import BatchCompression

UNBOUNDED_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, eq=False)
class SchemaIds:
    """What values may begin with: the ids of a subject's schemas, in order."""

    subject: str
    ids: npt.NDArray[np.int64]

    @classmethod
    def of(cls, subject: str, ids: Iterable[int]) -> "SchemaIds":
        return cls(subject, np.array(sorted(set(ids)), np.int64))


@dataclass(frozen=True, slots=True)
class BatchRules:
    """`before_ms`, `after_ms`: how far a producer's timestamp may be from the broker's time. `append_time`: records get
    the broker's time instead. `compression`: how batches are kept; None: as they were sent. `value_ids`: of the schemas
    that values must name; None: values are anything. `transactional`: batches of transactions are taken."""

    max_bytes: int
    needs_keys: bool = False
    before_ms: int = UNBOUNDED_MS
    after_ms: int = UNBOUNDED_MS
    append_time: bool = False
    compression: BatchCompression | None = None
    value_ids: SchemaIds | None = None
    transactional: bool = False

    def bounds(self, now_ms: int) -> tuple[int, int]:
        """The earliest and the latest timestamp that is taken now."""
        if self.append_time:
            return -UNBOUNDED_MS, UNBOUNDED_MS
        return max(now_ms - self.before_ms, -UNBOUNDED_MS), min(now_ms + self.after_ms, UNBOUNDED_MS)
