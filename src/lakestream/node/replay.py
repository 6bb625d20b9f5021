"""Dead letters that are tried again by hand, without Spark."""

from collections.abc import Callable

from lakestream.errors import UnknownStream
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.local import LocalTiles
from lakestream.frontier.upkeep.replaying import Replayed, replay
from lakestream.metadata.topics.list import Topics
from lakestream.node.storage.backends import open_backends
from lakestream.node.storage.schemas import make_schemas
from lakestream.node.storage.tables import open_catalog
from lakestream.settings import Settings


async def run_replay(settings: Settings, topic: str, told: Callable[[Replayed], None]) -> Replayed:
    """Fills the columns of what can be decoded now. `told` hears of every file."""
    async with open_backends(settings) as backends, open_catalog(backends) as catalog:
        runner = LocalTiles(backends.objects, backends.runtime)
        lake = Lake(
            *(backends.store, catalog, backends.objects, runner, backends.runtime, settings.pipeline, backends.wal),
            derived=catalog.derived,
            schemas=make_schemas(backends),
        )
        found = (await Topics(backends.store, backends.runtime).by_names([topic])).get(topic)
        if found is None:
            raise UnknownStream(f"there is no topic {topic!r}")
        return await replay(lake, found, told)
