"""What a seed chooses before a history begins: cast, settings and faults."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

import msgspec

from lakestream.coordination.settings import GroupSettings
from lakestream.frontier.settings import PipelineSettings
from lakestream.stream import StreamSettings
from simulator.faults import Aim, Faults, Theme, draw_faults

_SEQUENCE_LAST: Final = (1 << 31) - 1
_SHORT_MS: Final = 600
_LONG_MS: Final = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Scene:
    faults: Faults
    brokers: int
    pipelines: int
    producers: int
    batches_least: int
    batches_most: int
    idempotent: float
    """The share of producers that are."""
    forgetful: bool
    """Producers' rows expire while they still send: then a retry may land twice, as it may after a day."""
    first_sequence: int
    sends_most: int
    """How often a producer sends a batch before it gives up."""
    patience_s: float
    """How long a client waits for a broker's answer."""
    consumers: int
    members: int
    session_ms: int
    rebalance_ms: int
    lasts_s: float
    """The faults go on at least this long, whether producers have something to send or not."""
    engine: bool
    engine_rest_most_s: float
    """How long another engine rests between two of its acts."""
    delete_rows: float
    roll_back: float
    recreations: int
    stale_s: float
    """How old a listing may be, and how long a deleted object may still be served."""
    partial_deletes: float
    broker_ttl_ms: int
    rest_most_s: float
    """How long a pipeline rests that finds nothing to do."""
    collects: float
    """How often it looks for garbage after it moved what was due."""
    stream: StreamSettings
    pipeline: PipelineSettings
    group: GroupSettings
    saves: float = 0.4
    """Where the store is lost now and then: how often rows are saved instead."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a history is made to be about, whatever its seed draws: a planted bug that shows by a rare coincidence is
    looked for where that is common. Mappings have fields of the scene and of its settings."""

    theme: Theme | None = None
    aims: tuple[Aim, ...] = ()
    scene: Mapping[str, Any] = field(default_factory=dict)
    stream: Mapping[str, Any] = field(default_factory=dict)
    pipeline: Mapping[str, Any] = field(default_factory=dict)

    def set(self, scene: Scene) -> Scene:
        return replace(
            scene,
            faults=replace(scene.faults, aims=(*self.aims, *scene.faults.aims)),
            stream=msgspec.structs.replace(scene.stream, **self.stream),
            pipeline=msgspec.structs.replace(scene.pipeline, **self.pipeline),
            **self.scene,
        )


AS_DRAWN: Final = Stage()


def draw_scene(random: Random, wanted: Theme | None = None) -> Scene:
    """Histories of consumer groups are longer and have less of everything else, so that all cost about the same.
    An eager pipeline, which costs more, is that of some only: it makes objects old fast, and in a few histories they
    are old before their commits arrive. Where the topic is created again, clients go on long enough to notice. Where
    another engine is what it is about, the table moves in small steps: there is something to roll back to."""
    drawn: Theme = random.choices(("groups", "race", "recreation", "engine", "log"), (24, 4, 20, 8, 44))[0]
    theme = wanted or drawn
    grouped, racing, recreating, outside = (theme == name for name in ("groups", "race", "recreation", "engine"))
    forgetful = random.random() < 0.1
    eager = racing or outside or (not grouped and random.random() < 0.2)
    return Scene(
        faults=draw_faults(random, theme),
        brokers=random.choice((2, 2, 2, 3) if grouped else (1, 1, 2, 2, 3)),
        pipelines=1 if grouped else random.choice((1, 1, 1, 2)),
        producers=1 if grouped else random.choice((1, 1, 1, 2, 2)),
        batches_least=2,
        batches_most=3 if grouped or racing else random.choice((3, 5) if recreating or outside else (2, 2, 2, 2, 2, 7)),
        idempotent=random.choice((0.0, 0.7, 1.0)),
        forgetful=forgetful,
        first_sequence=random.choice((0, 0, _SEQUENCE_LAST - 1)),
        sends_most=random.choice((2, 12)),
        patience_s=random.choice((1.0, 3.0) if grouped else (1.0, 10.0, 10.0)),
        consumers=0 if grouped else random.choice((1, 2) if recreating else (0, 0, 1, 1, 2)),
        members=random.choice((2, 2, 3)) if grouped else 0,
        session_ms=random.choice((400, 2_000)),
        rebalance_ms=500,
        lasts_s=random.choice((1.0, 2.5)) if grouped or outside else random.choice((0.0, 0.0, 0.0, 0.0, 3.0)),
        engine=outside or (not grouped and random.random() < 0.5),
        engine_rest_most_s=0.2 if outside else 0.8,
        delete_rows=random.choice((0.0, 0.3)),
        roll_back=random.choice((0.3, 0.6) if outside else (0.0, 0.4)),
        recreations=random.choice((1, 3)) if recreating else 0,
        stale_s=random.choice((0.0, 5.0)),
        partial_deletes=0.2 if random.random() < 0.3 else 0.0,
        broker_ttl_ms=random.choice((2_000, 10_000)) if grouped else 20_000,
        rest_most_s=0.1 if racing else 0.2 if eager else 1.6,
        collects=1.0 if eager else 0.3,
        stream=StreamSettings(
            flush_interval_ms=random.choice((1, 20)),
            flushes_in_flight=random.choice((1, 3)),
            view_check_ms=random.choice((0, 500, 5_000)),
            generation_check_ms=random.choice((500, 4_000)),
            upload_deadline_ms=random.choice((500, 20_000)),
            tail_cache_bytes=random.choice((20_000,) if recreating else (0, 100_000)),
            receipt_idle_ms=random.choice((50, 2_000)),
            predecessor_wait_ms=random.choice((0, 100) if recreating else (0, 300, 3_000)),
        ),
        pipeline=PipelineSettings(
            generation_interval_ms=20 if racing else random.choice((20, 50, 300)),
            grace_ms=0 if racing else random.choice((0, 0, 1_000)),
            backoff_ms=50,
            max_backoff_ms=400,
            lease_ms=500,
            max_tick_bytes=200 if outside else random.choice((200, 1 << 20)),
            own_file_bytes=random.choice((1, 1 << 20)),
            producer_expiration_ms=50 if forgetful else 86_400_000,
            producer_check_interval_ms=50,
            sweep_ms=2_000,
        ),
        group=GroupSettings(
            initial_rebalance_delay_ms=random.choice((0, 200)),
            min_session_timeout_ms=1,
            lease_ttl_ms=random.choice((200, 1_000, 1_000)) if grouped else 10_000,
            idle_release_ms=500,
        ),
    )


def with_group(scene: Scene, seed: int) -> Scene:
    """What the histories of consumer groups have beside what is drawn: in some the topic is created again under its
    members, in some offsets lapse fast, in some a rebalance may take as long as a session. Not drawn: what all others
    play stays the same."""
    if not scene.members:
        return scene
    group = msgspec.structs.replace(
        scene.group, sweep_interval_ms=400, offsets_retention_ms=_SHORT_MS if seed % 3 == 0 else _LONG_MS
    )
    recreates = seed % 5 == 0
    return replace(
        scene,
        group=group,
        rebalance_ms=scene.rebalance_ms if seed % 2 else 2_500,
        recreations=5 if recreates else scene.recreations,
        lasts_s=max(scene.lasts_s, 4.0) if recreates else scene.lasts_s,
    )
