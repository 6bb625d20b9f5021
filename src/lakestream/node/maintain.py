"""Maintenance of tables by hand: the passes that a pipeline makes at its own pace, without Spark."""

from lakestream.errors import UnknownStream
from lakestream.frontier.collecting.orphans import Orphans
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.upkeep.maintenance import Maintenance, Step
from lakestream.metadata.topics.list import Topic, Topics
from lakestream.node.storage.backends import open_backends
from lakestream.node.storage.tables import open_catalog
from lakestream.settings import Settings

_MAX_PASSES = 1_000
"""A table that others write to at the same time may always have something left to do."""


async def run_maintenance(settings: Settings, topic: str | None, *, dry_run: bool) -> list[Step]:
    """What was done to the tables of one topic or of all, until nothing was left to do; with `dry_run` what one pass
    would do, and nothing changes."""
    async with open_backends(settings) as backends, open_catalog(backends) as catalog:
        runner = LocalTiles(backends.objects, backends.runtime)
        lake = Lake(
            backends.store,
            catalog,
            backends.objects,
            runner,
            backends.runtime,
            settings.pipeline,
            backends.wal,
            catalog.derived,
        )
        topics = Topics(backends.store, backends.runtime)
        listed = await topics.list() if topic is None else list((await topics.by_names([topic])).values())
        if topic is not None and not listed:
            raise UnknownStream(f"there is no topic {topic!r}")
        maintenance = Maintenance(lake, topics, name=f"maintain-{backends.runtime.new_id()}", respect_leases=False)
        steps: list[Step] = []
        for each in listed:
            for _ in range(1 if dry_run else _MAX_PASSES):
                done = await maintenance.maintain(each, dry_run=dry_run)
                steps += done
                if not done:
                    break
            steps += await _tidy(lake, Orphans(lake, topics), each, dry_run=dry_run)
        return steps


async def _tidy(lake: Lake, orphans: Orphans, topic: Topic, *, dry_run: bool) -> list[Step]:
    dead = await orphans.find(topic)
    if not dry_run:
        dead = await lake.delete(dead)
    return [Step(topic.name, "delete orphans", "files that no snapshot names", len(dead))] if dead else []
