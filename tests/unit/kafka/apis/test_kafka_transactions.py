"""Transactions as clients ask for them, byte by byte, in Kafka's codes."""

from typing import Any

from kio.schema.errors import ErrorCode
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams

NO_PRODUCER = {"producer_id": -1, "producer_epoch": -1}


def begin(transactional_id: str = "t", timeout_ms: int = 60_000, **known: int) -> dict[str, Any]:
    return {"transactional_id": transactional_id, "transaction_timeout": span(timeout_ms), **NO_PRODUCER, **known}


class Producer:
    """Of one transactional id, by hand."""

    def __init__(self, client: Client, transactional_id: str = "t") -> None:
        self.client = client
        self.fields: dict[str, Any] = {"transactional_id": transactional_id}

    async def begin(self, **known: int) -> "Producer":
        answer = await self.client.ask(22, 5, begin(self.fields["transactional_id"], **known))
        assert answer.error_code is ErrorCode.none
        self.fields |= {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
        return self

    async def end(self, version: int = 5, *, committed: bool = True) -> Any:
        return await self.client.ask(26, version, {**self.fields, "committed": committed})

    async def add(self, *partitions: int, topic: str = "orders", version: int = 3) -> list[ErrorCode]:
        fields = {f"v3_and_below_{name}": value for name, value in self.fields.items()}
        fields["v3_and_below_topics"] = [{"name": topic, "partitions": partitions}]
        answer = await self.client.ask(24, version, fields)
        [result] = answer.results_by_topic_v3_and_below
        return [each.partition_error_code for each in result.results_by_partition]

    async def verify(self, *partitions: int, only: bool = True, version: int = 5) -> list[ErrorCode]:
        asked = {**self.fields, "verify_only": only, "topics": [{"name": "orders", "partitions": partitions}]}
        answer = await self.client.ask(24, version, {"transactions": [asked]})
        [result] = answer.results_by_transaction
        return [each.partition_error_code for each in result.topic_results[0].results_by_partition]

    async def commit_offset(self, offset: int, version: int = 5, topic: str = "orders", **member: Any) -> ErrorCode:
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        who = {"generation_id": -1, "member_id": "", "group_instance_id": None} | member
        topics = [{"name": topic, "partitions": [partition]}]
        answer = await self.client.ask(28, version, {**self.fields, **who, "group_id": "g", "topics": topics})
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code


async def fetched(client: Client, *, stable: bool) -> tuple[ErrorCode, int]:
    topics = [{"name": "orders", "partition_indexes": [0]}]
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
    answer = await client.ask(9, 9, {"groups": [group], "require_stable": stable})
    partition = answer.groups[0].topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


def test_features_tell_what_there_is() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        for version in (3, 4):
            answer = await client.ask(18, version, {"client_software_name": "a", "client_software_version": "1"})
            assert answer.finalized_features_epoch == 0
            assert [(each.name, each.max_version_level) for each in answer.finalized_features] == [
                ("share.version", 1),
                ("transaction.version", 2),
            ]
            assert [(each.name, each.min_version, each.max_version) for each in answer.supported_features] == [
                *([("share.version", 0, 1), ("transaction.version", 0, 2)] if version > 3 else [])
            ]
        assert (await client.ask(18, 0, {})).error_code is ErrorCode.none

    with_door(test)


def test_version_1_adds_and_ends_in_one_epoch() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("orders", 2, {})
        producer = await Producer(client).begin()
        assert producer.fields["producer_epoch"] == 0
        assert (await producer.end(4)).error_code is ErrorCode.invalid_txn_state
        assert await producer.add(0, 1) == [ErrorCode.none, ErrorCode.none]
        assert await producer.add(0, 5) == [ErrorCode.operation_not_attempted, ErrorCode.unknown_topic_or_partition]
        assert await producer.add(0, topic="nowhere") == [ErrorCode.unknown_topic_or_partition]
        for _ in range(2):
            assert (await producer.end(4)).error_code is ErrorCode.none
        assert (await producer.end(4, committed=False)).error_code is ErrorCode.invalid_txn_state
        assert await producer.add(1) == [ErrorCode.none]
        assert (await producer.end(0, committed=False)).error_code is ErrorCode.none

    with_door(test)


def test_version_2_goes_on_in_the_next_epoch() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("orders", 2, {})
        producer = await Producer(client).begin()
        assert await producer.verify(0, only=False) == [ErrorCode.none]
        assert await producer.verify(0, 1) == [ErrorCode.none, ErrorCode.transaction_abortable]
        for _ in range(2):
            answer = await producer.end()
            assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, 1)
            assert answer.producer_id == producer.fields["producer_id"]
        assert (await producer.end(committed=False)).error_code is ErrorCode.invalid_txn_state
        assert await producer.verify(0) == [ErrorCode.producer_fenced]

    with_door(test)


def test_a_zombie_is_fenced_in_words_that_its_version_knows() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("orders", 1, {})
        zombie, newer = await Producer(client).begin(), await Producer(client).begin()
        assert newer.fields["producer_id"] == zombie.fields["producer_id"]
        for version, code in ((1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced)):
            assert await zombie.add(0, version=version) == [code]
            assert (await zombie.end(version)).error_code is code
            answer = await client.ask(25, version, {**zombie.fields, "group_id": "g"})
            assert answer.error_code is code
        assert await zombie.commit_offset(1) is ErrorCode.invalid_producer_epoch
        for version, code in ((3, ErrorCode.invalid_producer_epoch), (4, ErrorCode.producer_fenced)):
            answer = await client.ask(22, version, begin(**{name: zombie.fields[name] for name in NO_PRODUCER}))
            assert (answer.error_code, answer.producer_id) == (code, -1)
        stranger = Producer(client, "stranger")
        stranger.fields |= {"producer_id": 7, "producer_epoch": 0}
        assert (await stranger.end()).error_code is ErrorCode.invalid_producer_id_mapping
        assert await stranger.add(0) == [ErrorCode.invalid_producer_id_mapping]

    with_door(test)


def test_ids_and_time_outs_that_cannot_be() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        for timeout_ms in (0, 900_001):
            answer = await client.ask(22, 5, begin(timeout_ms=timeout_ms))
            assert answer.error_code is ErrorCode.invalid_transaction_timeout
        for name in ("", "x" * 60_000):
            answer = await client.ask(22, 5, begin(name))
            assert answer.error_code is ErrorCode.invalid_request
        described = await client.ask(65, 0, {"transactional_ids": ("", "x", "x" * 30_000)})
        assert [each.error_code for each in described.transaction_states] == [
            ErrorCode.invalid_request,
            ErrorCode.transactional_id_not_found,
            ErrorCode.transactional_id_not_found,
        ]

    with_door(test)


def test_offsets_in_a_transaction() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("orders", 1, {})
        producer = await Producer(client).begin()
        assert await producer.commit_offset(5, version=3) is ErrorCode.invalid_txn_state
        assert await producer.commit_offset(5, version=4) is ErrorCode.transaction_abortable
        assert await producer.commit_offset(5, topic="nowhere") is ErrorCode.unknown_topic_or_partition
        assert await producer.commit_offset(5, member_id="x", generation_id=3) is ErrorCode.illegal_generation
        assert (await client.ask(25, 3, {**producer.fields, "group_id": "g"})).error_code is ErrorCode.none
        assert await producer.commit_offset(5, version=3) is ErrorCode.none
        assert await fetched(client, stable=True) == (ErrorCode.unstable_offset_commit, -1)
        assert await fetched(client, stable=False) == (ErrorCode.none, -1)
        assert (await producer.end(3)).error_code is ErrorCode.none
        assert await fetched(client, stable=True) == (ErrorCode.none, 5)
        # v5 brings the group along.
        assert await producer.commit_offset(6) is ErrorCode.none
        answer = await producer.end(committed=False)
        assert answer.error_code is ErrorCode.none
        assert await fetched(client, stable=True) == (ErrorCode.none, 5)
        assert await producer.commit_offset(7) is ErrorCode.invalid_producer_epoch

    with_door(test)


def test_described_and_listed() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("orders", 3, {})
        first, second = await Producer(client, "first").begin(), await Producer(client, "second").begin()
        await first.add(0, 2)
        [described] = (await client.ask(65, 0, {"transactional_ids": ("first",)})).transaction_states
        assert (described.transaction_state, described.producer_epoch) == ("Ongoing", 0)
        assert [(each.topic, each.partitions) for each in described.topics] == [("orders", (0, 2))]
        await second.add(1)
        await second.end(4)

        async def listed(**filters: Any) -> list[tuple[str, str]]:
            nothing = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}
            asked = nothing | {"transactional_id_pattern": None} | filters
            answer = await client.ask(66, 2, asked)
            assert answer.error_code is ErrorCode.none
            assert answer.unknown_state_filters == tuple(each for each in asked["state_filters"] if each == "Odd")
            return [(each.transactional_id, each.transaction_state) for each in answer.transaction_states]

        both = [("first", "Ongoing"), ("second", "CompleteCommit")]
        assert await listed() == both
        assert await listed(state_filters=("Ongoing", "Odd")) == both[:1]
        assert await listed(state_filters=("Odd",)) == []
        assert await listed(producer_id_filters=(second.fields["producer_id"],)) == both[1:]
        assert await listed(duration_filter=100_000) == []
        assert await listed(transactional_id_pattern="f.*") == both[:1]
        assert await listed(transactional_id_pattern="f") == []
        for pattern in ("(", "(a+)+", "a*b*c*"):
            asked = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}
            answer = await client.ask(66, 2, asked | {"transactional_id_pattern": pattern})
            assert answer.error_code is ErrorCode.invalid_regular_expression

    with_door(test)


def test_markers_of_tools() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("orders", 1, {})
        producer = await Producer(client).begin()
        await producer.add(0)

        async def mark(topic: str, *partitions: int, **changes: Any) -> list[ErrorCode]:
            who = {name: producer.fields[name] for name in NO_PRODUCER}
            topics = [{"name": topic, "partition_indexes": partitions}]
            marker = {**who, "transaction_result": False, "topics": topics, "coordinator_epoch": 0} | changes
            answer = await client.ask(27, 2, {"markers": [marker | {"transaction_version": 2}]})
            return [each.error_code for each in answer.markers[0].topics[0].partitions]

        assert await mark("orders", 0, 1) == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
        assert await mark("nowhere", 0) == [ErrorCode.unknown_topic_or_partition]
        assert await mark("orders", 0, producer_id=99) == [ErrorCode.none]
        # Nothing was open in the log, and the producer goes on.
        assert (await producer.end(4)).error_code is ErrorCode.none

    with_door(test)
