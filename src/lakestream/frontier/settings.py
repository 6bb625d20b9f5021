"""What the movement from WAL to table may be told. Text only: no component lives here."""

from typing import Final

import msgspec

MIB = 1024 * 1024


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times in milliseconds, sizes in bytes of WAL as stored (compressed batches count compressed)."""

    interval_ms: int = 5_000
    """Time from the start of one tick to the start of the next: how old a table may be whose topic does not say."""
    sweep_ms: int = 600_000
    """Every topic is looked at this often, whatever brokers tell of it; those that they tell of by the next tick."""
    min_tile_bytes: int = 4 * MIB
    """A tile below this is not worth a task of its own."""
    target_tile_bytes: int = 192 * MIB
    """A worker holds one tile in memory, so this bounds it. The larger a tile, the fewer and larger its reads."""
    max_tick_bytes: int = 1024 * MIB
    """Of one topic: more waits for the next tick, so that progress is committed now and then."""
    max_tail_bytes: int = 256 * MIB
    """A topic with this much in the WAL is moved, however long its commit interval."""
    target_file_bytes: int = 128 * MIB
    """A table file that has reached this is finished and the next begun; it is in memory until then."""
    own_file_bytes: int = 8 * MIB
    """A partition with at least this much in a tile gets files of its own; smaller ones share one."""
    max_commit_attempts: int = 20
    """Conflicts with outside rewriters that one commit rides out."""
    schema_wait_ms: int = 30_000
    """How long the rows of a topic wait when the schemas of their values cannot be asked for. Then they keep their
    bytes."""
    lease_ms: int = 10_000
    """How long other workers leave a topic alone that this one works on. Advisory."""
    backoff_ms: int = 1_000
    """A failing topic is quarantined this long, twice as long each time, up to max_backoff_ms."""
    max_backoff_ms: int = 60_000
    generation_interval_ms: int = 180_000
    """Pace at which the WAL generation is raised while objects wait for collection."""
    drain_ms: int = 10_000
    """When the pipeline is told to stop it moves what was acked until then, for no longer than this. 0: it does not."""
    collect_interval_ms: int = 10_000
    grace_ms: int = 60_000
    """Courtesy to readers: a dead object is kept until it is this old. Never proof of anything."""
    max_collect_objects: int = 2_000
    """Objects looked at in one collection pass. While passes come to this limit and find something dead there is one
    after every tick: brokers of the disk profile may write a thousand objects a second."""
    max_collect_tables: int = 4
    """Tables looked through for orphans in one pass, all of them in turn: a look lists the table's files."""
    producer_expiration_ms: int = 86_400_000
    """Kafka's producer.id.expiration.ms: a partition forgets the state of an idempotent producer that has written
    nothing to it for so long."""
    producer_check_interval_ms: int = 600_000
    """Every partition is looked at this often for producers to forget."""
    maintain_interval_ms: int = 30_000
    """Pause between two passes of maintenance: retention, merges, folds."""
    max_maintain_tables: int = 16
    """Tables that one pass looks at, all of them in turn."""
    small_file_bytes: int = 32 * MIB
    """Table files below this are merged with their neighbours."""
    min_merge_files: int = 8
    """Fewer neighbours are not worth a merge."""
    max_rewrite_bytes: int = 128 * MIB
    """Rows that one rewrite takes, uncompressed: it holds them in memory about three times."""
    max_rewrites: int = 4
    """Rewrites of one table in a pass."""
    derive_interval_ms: int = 2_000
    """Pause between two passes over derived tables: see docs/DERIVED.md."""
    derive_rows: int = 200_000
    """Records of one step, which is one commit of a derived table."""
    derive_bytes: int = 64 * MIB
    """The same, uncompressed: a step holds them in memory about three times."""
    derive_steps: int = 8
    """Of one table in a pass."""
    derived_wait_ms: int = 86_400_000
    """How much longer than its retention a row stays in a table from which another is derived that has not seen it."""


class FreshSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tables brought up to date for engines that load them. Sizes in bytes of WAL as stored."""

    wait_ms: int = 5_000
    """A load waits no longer for freshness: it is answered with what is there."""
    max_bytes: int = 64 * MIB
    """Of one topic, in one commit: what is beyond it is left to the pipeline."""
    tile_bytes: int = 16 * MIB
    """Held in memory by each thread."""
    threads: int = 2
    backoff_ms: int = 500
    """After a failure loads do without for so long, twice as long each time, up to max_backoff_ms."""
    max_backoff_ms: int = 30_000

    def pipeline(self) -> PipelineSettings:
        """The same as the settings of the chain."""
        return PipelineSettings(
            max_tick_bytes=self.max_bytes, min_tile_bytes=self.tile_bytes, target_tile_bytes=self.tile_bytes
        )


class DiskSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the WAL of topics with `lakestream.profile=disk` goes: see docs/PROFILES.md."""

    stores: str = ""
    """URLs of low-latency stores that every broker reaches, commas between them: file:///volume, s3://bucket … A record
    is acknowledged when a majority of them has it. Empty: the bucket, if that is a local directory."""
    flush_interval_ms: int = 1
    """How long appends wait for company; under load twice as long and more, up to flush_loaded_ms."""
    flush_loaded_ms: int = 10
    flushes_in_flight: int = 2
    check_ms: int = 1_000
    """How often a broker looks whether the stores are whole."""
    spill_after_ms: int = 60_000
    """What the pipeline leaves in the WAL for longer is moved from the disk stores into the bucket."""
    keep_interval_ms: int = 5_000
    """How often one of the brokers looks for what is to be spilled, and for lost stores to be copied again."""

    @property
    def urls(self) -> list[str]:
        return [url for url in (each.strip().rstrip("/") for each in self.stores.split(",")) if url]


NO_DISKS: Final = DiskSettings()
