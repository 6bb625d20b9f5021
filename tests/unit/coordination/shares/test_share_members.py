"""Members of share groups: the state machine, its assignor, and another coordinator that goes on with it."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from support.clients.wire import span
from support.groups.newer import known, topic_id
from support.properties import examples
from support.shares.door import ALTER, DELETE, DESCRIBE, OFFSETS, ShareDoor, acquired, fill, with_doors

from lakestream.coordination.groups import Beat, Beaten, GroupError, ShareGroup
from lakestream.coordination.groups.consumer.members import each_of
from lakestream.coordination.groups.consumer.topics import KnownTopics
from lakestream.coordination.groups.share.assigning import assign_shared
from lakestream.coordination.groups.share.group import problem_of
from lakestream.coordination.settings import GroupSettings
from lakestream.metadata.groups import stored_groups


class Stage:
    def __init__(self, topics: KnownTopics | None = None, **settings: int) -> None:
        self.group = ShareGroup(GroupSettings(**settings))
        self.topics = topics or known(t=2)
        self.now_ms = 0.0

    def beat(self, member: str, epoch: int = 0, *topics: str) -> Beaten:
        names = topics or (("t",) if epoch == 0 else None)
        return self.group.heartbeat(Beat(member, epoch, "c", "h", topics=names), self.topics, self.now_ms)

    def reads(self, member: str) -> list[int]:
        return sorted(index for _, index in each_of(self.group.members[member].assigned))


def test_partitions_are_dealt_out_and_shared_when_there_are_too_few() -> None:
    stage = Stage()
    first = stage.beat("a")
    assert (first.epoch, first.assigned) == (1, {topic_id("t"): frozenset({0, 1})})
    stage.beat("b")
    assert stage.beat("a", 1).epoch == 2, "it goes on at once: nobody has to give anything up"
    assert sorted([*stage.reads("a"), *stage.reads("b")]) == [0, 1]
    for member in ("c", "d"):
        stage.beat(member)
    for member in "abcd":
        stage.beat(member, stage.group.members[member].epoch)
    assert sorted(index for member in "abcd" for index in stage.reads(member)) == [0, 0, 1, 1]
    assert stage.beat("a", stage.group.epoch).assigned is None, "nothing new"
    stage.topics = known(t=8)
    assert len(stage.beat("a", stage.group.epoch).assigned or {}) == 1
    assert len(stage.reads("a")) == 2


def test_epochs_and_names() -> None:
    stage = Stage(share_max_members=2)
    assert stage.beat("a", 3).error is GroupError.UNKNOWN_MEMBER
    assert problem_of(Beat("a", 0, "c", "h", topics=("t",))) == ""
    for member, epoch, topics in (("", 0, ("t",)), ("x" * 37, 0, ("t",)), ("a", -2, None), ("a", 0, None)):
        assert problem_of(Beat(member, epoch, "c", "h", topics=topics))
    assert problem_of(Beat("a", 1, "c", "h", rack_id=""))
    stage.beat("a")
    stage.beat("b")
    assert stage.beat("c").error is GroupError.GROUP_FULL
    assert stage.beat("a", 1).epoch == 2
    assert stage.beat("a", 1).error is GroupError.NONE, "the answer was lost"
    assert stage.beat("a", 7).error is GroupError.FENCED_EPOCH
    assert stage.beat("b", -1).epoch == -1
    assert stage.beat("a", 2).epoch == 3


def test_who_is_not_heard_of_is_out() -> None:
    stage = Stage(share_session_timeout_ms=100)
    stage.beat("a")
    stage.now_ms = 50
    stage.beat("b")
    assert stage.group.next_deadline_ms() == 100
    assert stage.group.expire(120) == ["a"]
    assert list(stage.group.members) == ["b"]


@examples(200)
@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    wants=st.lists(st.sets(st.integers(0, 2), min_size=1), min_size=1, max_size=8),
    again=st.lists(st.sets(st.integers(0, 2), min_size=1), max_size=8),
)
def test_everybody_reads_something_and_everything_is_read(
    counts: list[int], wants: list[set[int]], again: list[set[int]]
) -> None:
    ids = [UUID(int=number + 1) for number in range(3)]
    topics = dict(zip(ids, counts, strict=False))
    before: dict[str, dict[UUID, frozenset[int]]] = {}
    for round_of in (wants, again or wants):
        subscribed = {f"m{at}": frozenset(ids[each] for each in some) for at, some in enumerate(round_of)}
        targets = assign_shared(subscribed, topics, before, sorted(subscribed))
        for member, target in targets.items():
            assert target.keys() <= subscribed[member]
            assert bool(target) == bool(subscribed[member] & topics.keys())
        read = {pair for target in targets.values() for pair in each_of(target)}
        wanted = frozenset[UUID]().union(*subscribed.values()) & topics.keys()
        assert read == {(topic, index) for topic in wanted for index in range(topics[topic])}
        if all(each == ids_of for ids_of in [next(iter(subscribed.values()))] for each in subscribed.values()):
            sizes = [sum(map(len, target.values())) for target in targets.values()]
            assert max(sizes) - min(sizes) <= 1
        before = {member: dict(target) for member, target in targets.items()}


def test_another_coordinator_goes_on() -> None:
    async def test(topic: UUID, first: ShareDoor, second: ShareDoor) -> None:
        one = await first.member("one")
        beaten = await one.beat("t")
        assert (beaten.error_code, beaten.member_epoch) == (ErrorCode.none, 1)
        other = await second.member("one")
        assert (await other.beat(epoch=1)).error_code == ErrorCode.not_coordinator
        await first.close()
        again = await other.beat(epoch=1)
        assert (again.error_code, again.member_epoch, again.assignment) == (ErrorCode.none, 1, None)
        asked = {"group_ids": ["g"], "include_authorized_operations": False}
        [group] = (await other.client.ask(DESCRIBE, 1, asked)).groups
        assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 1, "simple")
        assert [each.subscribed_topic_names for each in group.members] == [("t",)]

    with_doors(test, 2)


def test_kinds_of_groups_do_not_mix() -> None:
    async def test(topic: UUID, door: ShareDoor) -> None:
        member = await door.member("one")
        await member.beat("t")
        newer = {
            "group_id": "g",
            "member_id": "c",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": span(1_000),
            "subscribed_topic_names": ["t"],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": (),
        }
        assert (await member.client.ask(68, 1, newer)).error_code == ErrorCode.group_id_not_found
        assert (await member.client.ask(68, 1, newer | {"group_id": "c"})).error_code == ErrorCode.none
        stranger = await door.member("two", "c")
        assert (await stranger.beat("t")).error_code == ErrorCode.group_id_not_found
        listed = await member.client.ask(16, 5, {"states_filter": (), "types_filter": ("share",)})
        assert [(each.group_id, each.group_type, each.group_state) for each in listed.groups] == [
            ("g", "share", "Stable")
        ]

    with_doors(test)


def test_operators_look_set_and_forget() -> None:
    async def test(topic: UUID, door: ShareDoor) -> None:
        await fill(door.engine, topic, 5, 5)
        member = await door.member("one")
        await member.beat("t")
        await member.fetch(topic, max_records=5)
        await member.acknowledge(topic, (0, 4, (1, 1, 2, 1, 1)))
        asked = {"groups": [{"group_id": "g", "topics": None}, {"group_id": "none", "topics": None}]}
        ours, nobodys = (await member.client.ask(OFFSETS, 1, asked)).groups
        assert nobodys.topics == ()
        rows = [(each.partition_index, each.start_offset, each.lag) for each in ours.topics[0].partitions]
        assert rows == [(0, 2, 6), (1, -1, -1)]
        wanted = [{"topic_name": "t", "partitions": [0, 1, 9]}, {"topic_name": "no", "partitions": [0]}]
        [group] = (await member.client.ask(OFFSETS, 1, {"groups": [{"group_id": "g", "topics": wanted}]})).groups
        assert [each.start_offset for topic in group.topics for each in topic.partitions] == [2, -1, -1, -1]
        alter = {
            "group_id": "g",
            "topics": [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 8}]}],
        }
        delete = {"group_id": "g", "topics": [{"topic_name": "t"}]}
        assert (await member.client.ask(ALTER, 0, alter)).error_code == ErrorCode.non_empty_group
        assert (await member.client.ask(DELETE, 0, delete)).error_code == ErrorCode.non_empty_group
        await member.beat(epoch=-1)
        assert (await member.client.ask(ALTER, 0, alter)).error_code == ErrorCode.none
        other = await door.member("other")
        assert acquired(await other.fetch(topic)) == [(8, 9, 1)]
        assert (await member.client.ask(DELETE, 0, delete)).error_code == ErrorCode.none
        told = (await member.client.ask(DELETE, 0, delete)).responses
        assert told[0].error_code == ErrorCode.unknown_topic_or_partition, "there is nothing any more"
        third = await door.member("third")
        assert acquired(await third.fetch(topic)) == [(0, 9, 1)]
        gone = await member.client.ask(42, 2, {"groups_names": ["g"]})
        assert gone.results[0].error_code == ErrorCode.none
        [group] = (await member.client.ask(OFFSETS, 1, {"groups": [{"group_id": "g", "topics": None}]})).groups
        assert group.topics == ()
        assert not await door.engine.store.shards("share/", "share0")
        assert (await member.client.ask(DELETE, 0, delete)).error_code == ErrorCode.group_id_not_found
        assert (await member.client.ask(ALTER, 0, alter)).error_code == ErrorCode.none, "it is there from now on"
        listed = await member.client.ask(16, 5, {"states_filter": (), "types_filter": ("share",)})
        assert [(each.group_id, each.group_state) for each in listed.groups] == [("g", "Empty")]

    with_doors(test)


def test_what_is_left_of_a_group_goes() -> None:
    async def test(topic: UUID, door: ShareDoor) -> None:
        await fill(door.engine, topic, 1)
        member = await door.member("one")
        await member.beat("t")
        await member.fetch(topic)
        await member.beat(epoch=-1)
        sweeper = door.coordinator.sweeper
        await sweeper.sweep()
        assert await door.engine.store.shards("share/", "share0"), "it may go on where it was"
        await door.engine.delete_topic(topic)
        await sweeper.sweep()
        assert not await door.engine.store.shards("share/", "share0")
        assert not await stored_groups(door.engine.store)

    with_doors(test)


def test_share_coordinators_are_for_brokers() -> None:
    async def test(topic: UUID, door: ShareDoor) -> None:
        member = await door.member()
        ask = {"key_type": 2, "coordinator_keys": ["g:AAAAAAAAAAAAAAAAAAAAAA:0", "g"]}
        found, none = (await member.client.ask(10, 6, ask)).coordinators
        assert (found.error_code, none.error_code) == (ErrorCode.none, ErrorCode.invalid_request)
        for key, version, field in (
            (83, 0, "state_epoch"),
            (84, 0, "leader_epoch"),
            (86, 0, ""),
            (87, 1, "leader_epoch"),
        ):
            partition = {"partition": 0, "start_offset": 0, "state_epoch": 0, "leader_epoch": 0, field: 0}
            topics = [{"topic_id": topic, "partitions": [partition]}]
            answer = await member.client.ask(key, version, {"group_id": "g", "topics": topics})
            assert answer.results[0].partitions[0].error_code == ErrorCode.cluster_authorization_failed

    with_doors(test)
