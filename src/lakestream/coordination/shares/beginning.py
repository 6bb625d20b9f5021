"""Where a group begins in a partition that nobody in it has asked for yet."""

from lakestream.coordination.resetting import BY_DURATION, duration_ms
from lakestream.coordination.settings import GroupSettings
from lakestream.model import StreamPartition
from lakestream.stream import EARLIEST, LATEST
from lakestream.stream.engine import StreamEngine


async def first_offset(engine: StreamEngine, partition: StreamPartition, settings: GroupSettings) -> int:
    reset = settings.share_auto_offset_reset
    if reset == "earliest":
        return (await engine.list_offset(partition, EARLIEST)).offset
    if reset.startswith(BY_DURATION):
        since_ms = engine.runtime.clock.now_ms() - (duration_ms(reset.removeprefix(BY_DURATION)) or 0)
        found = await engine.list_offset(partition, max(since_ms, 0))
        if found.offset >= 0:
            return found.offset
    return (await engine.list_offset(partition, LATEST)).offset
