"""What a topic asks of the upkeep of its table in a history, and how records are read for it.

The simulation's records have no keys and no tombstones of their own: both are worked out from the value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from simulator.scene import Scene

KEPT: Final = (45, 0)
"""In every so many histories, those with this remainder, somebody looks after the table. Not drawn: what all others
play stays the same."""


@dataclass(frozen=True, slots=True)
class Policy:
    """`settings` are the topic's. `moves_start`: the log start may move, as far as the frontier; `deletes`: beyond it,
    because the owner deletes records. `drops`: rows below it may leave the table. `folds`: superseded rows may."""

    name: str
    settings: Mapping[str, str]
    moves_start: bool = False
    deletes: bool = False
    drops: bool = False
    folds: bool = False
    mirrors: bool = False
    """A Delta log follows the table."""

    @property
    def only_merges(self) -> bool:
        return not (self.moves_start or self.folds)


MERGES: Final = Policy("merges", {})
_POLICIES: Final = (
    MERGES,
    Policy("compaction", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}, folds=True),
    Policy(
        "compaction, tombstones go",
        {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "100"},
        folds=True,
    ),
    Policy("retention of the stream", {"retention.bytes": "150"}, moves_start=True),
    Policy("retention of the table", {"lakestream.table.retention.ms": "400"}, moves_start=True, drops=True),
    Policy("mirror", {"lakestream.table.formats": "iceberg,delta"}, mirrors=True),
    Policy("deleted records", {"retention.bytes": "150"}, moves_start=True, deletes=True),
)


def policy_of(seed: int, scene: Scene) -> Policy | None:
    """None: nobody looks after the table. Members of groups do not expect the log to begin later."""
    if seed % KEPT[0] != KEPT[1]:
        return None
    return MERGES if scene.members else _POLICIES[seed // KEPT[0] % len(_POLICIES)]


def suited(scene: Scene, policy: Policy) -> Scene:
    """A scene in which there is something to look after: more batches, small files, time to work on them. Where rows
    leave by a rule nobody rolls back, which would bring them back. Folds are hard where an engine rewrites what was
    folded."""
    return replace(
        scene,
        batches_least=scene.batches_least if scene.members else 8,
        batches_most=scene.batches_most if scene.members else 14,
        lasts_s=max(scene.lasts_s, 3.0),
        rest_most_s=0.1,
        collects=1.0,
        pipelines=2 if policy.mirrors else scene.pipelines,
        engine=scene.engine or policy.folds,
        engine_rest_most_s=0.3 if policy.folds else scene.engine_rest_most_s,
        pipeline=msgspec.structs.replace(scene.pipeline, max_tick_bytes=200),
        roll_back=scene.roll_back if policy.only_merges else 0.0,
    )


def key_of(value: bytes) -> bytes:
    """Two keys: the batches of a producer take turns."""
    return b"even" if _number(value) % 2 == 0 else b"odd"


def is_tombstone(value: bytes) -> bool:
    """Those of every second pair of batches: each key is deleted now and then, and comes back."""
    return _number(value) // 2 % 2 == 1


def _number(value: bytes) -> int:
    """Of the batch, as its producer counts."""
    return int(value.split(b".")[2])
