"""Consumer groups without Kafka: another door could run them on `coordination` alone."""

import subprocess
import sys
from pathlib import Path

DOOR = """
import asyncio, sys
from support.groups.coordinators import PARTITION, CoordinatorWorld, joining
from lakestream.coordination.groups import GroupError, Sync
from lakestream.metadata.groups import CommittedOffset


async def main():
    world = CoordinatorWorld()
    async with world.broker() as coordinator:
        first = asyncio.create_task(coordinator.join("g", joining()))
        second = asyncio.create_task(coordinator.join("g", joining()))
        members = [await first, await second]
        assert [each.error for each in members] == [GroupError.NONE] * 2
        [leader] = [each for each in members if each.member_id == each.leader]
        shares = {each.member_id: each.member_id.encode() for each in leader.members}
        assert len(shares) == 2
        for each in sorted(members, key=lambda each: each is not leader):
            given = shares if each is leader else {}
            synced = await coordinator.sync("g", Sync(each.member_id, None, each.generation, None, None, given))
            assert synced.assignment == shares[each.member_id]
        offsets = {PARTITION: CommittedOffset(7, -1, "", 0)}
        assert await coordinator.commit("g", leader.member_id, None, leader.generation, offsets) is GroupError.NONE
        late = await coordinator.commit("g", leader.member_id, None, leader.generation - 1, offsets)
        assert late is GroupError.STALE_GENERATION
        assert (await coordinator.offsets("g"))[PARTITION].offset == 7
        assert await coordinator.delete("g") is GroupError.NOT_EMPTY
    assert not [name for name in sys.modules if name.split(".")[0] == "kio" or name.startswith("lakestream.kafka")]


asyncio.run(main())
"""


def test_a_group_runs_without_kafka() -> None:
    tests = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", DOOR], cwd=tests, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
