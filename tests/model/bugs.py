"""Planted bugs: switches of the model, each with the bounds that are enough to show it and what it must break."""

from dataclasses import dataclass

from .cells import Bounds

_SMALL = Bounds(brokers=1, partitions=1, pipelines=1, orphan_files=0)
_TWO_PARTITIONS = Bounds(brokers=1, partitions=2, pipelines=1, orphan_files=0)
_TWO_BROKERS = Bounds(brokers=2, partitions=1, pipelines=1, objects=1, orphan_files=0)
_TWO_PIPELINES = Bounds(brokers=2, partitions=1, pipelines=2, objects=1, orphan_files=0)
_ORPHAN = Bounds(brokers=1, partitions=1, pipelines=1)

NAMED = "an object is deleted that an extent names"
MISSING = "an extent names an object that is not in the bucket"
TWICE = "a record is in the log twice"
CONDEMNED = "a file is condemned that can still be committed"
NEVER = "something is never moved to the table, or never goes away"
FALLS = "a frontier, a fence or the generation falls"


@dataclass(frozen=True, slots=True)
class Bug:
    bounds: Bounds
    breaks: str


BUGS = {
    "ack-before-commit": Bug(_SMALL, "an acked record is not in the log"),
    "commit-before-upload": Bug(_SMALL, MISSING),
    "commit-ignores-the-fence": Bug(_SMALL, NAMED),
    "no-compare-of-the-head": Bug(_SMALL, NAMED),
    "retry-after-unknown-outcome": Bug(_SMALL, TWICE),
    "outcome-decided-by-the-extent": Bug(_SMALL, TWICE),
    "unknown-outcome-uploaded-again": Bug(_SMALL, TWICE),
    "upload-deleted-after-unknown-outcome": Bug(_SMALL, NAMED),
    "extents-dropped-before-the-table-commit": Bug(_SMALL, "the log was told that the table holds more than it does"),
    "range-delete-off-by-one": Bug(_TWO_BROKERS, "a record above the head's frontier has no extent"),
    "no-compare-of-the-frontier": Bug(_TWO_PIPELINES, "rows are in the table twice, or are missing below its frontier"),
    "frontier-moved-back": Bug(_TWO_PIPELINES, FALLS),
    "head-frontier-moved-back": Bug(_SMALL, FALLS),
    "file-deleted-after-unknown-outcome": Bug(_SMALL, "a file is deleted that the table names"),
    "orphan-judged-by-age": Bug(_SMALL, CONDEMNED),
    "orphan-judged-by-its-start": Bug(_TWO_PIPELINES, CONDEMNED),
    "orphan-reaped-at-the-frontier": Bug(_SMALL, CONDEMNED),
    "collected-without-fence": Bug(_SMALL, NAMED),
    "extents-read-before-the-fence": Bug(_SMALL, NAMED),
    "one-partition-read": Bug(_TWO_PARTITIONS, NAMED),
    "reader-routed-by-the-head": Bug(_SMALL, "a reader with an older view skips a record"),
    "generation-never-raised": Bug(_SMALL, NEVER),
    "orphans-never-reaped": Bug(_ORPHAN, NEVER),
    "advance-only-by-the-committer": Bug(_SMALL, NEVER),
}
