"""Profiles under load, with librdkafka: switched, with stores lost, spilled, out of reach."""

import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from support.servers.s3 import environment, make_bucket, s3_server
from support.worlds.disks import TOPIC, Load, check_all_there, is_whole, lose, make_topic, objects_in, three, wait_for
from support.worlds.embedded import embedded


def switch(admin: AdminClient, profile: str) -> None:
    entry = ConfigEntry("lakestream.profile", profile, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    [done] = admin.incremental_alter_configs([resource]).values()
    done.result(30)


def test_a_topic_is_switched_under_load(tmp_path: Path) -> None:
    with embedded(tmp_path / "data", 2, **three(tmp_path)) as brokers:
        admin = make_topic(brokers, "diskless")
        with Load(brokers) as load:
            for profile in ("disk", "diskless", "disk", "diskless", "disk"):
                load.grows()
                switch(admin, profile)
                time.sleep(0.2)
            wait_for(lambda: bool(objects_in(tmp_path / "a")))
            load.grows()
        check_all_there(brokers, load.sent)


def test_each_of_three_stores_is_lost_in_turn_and_copied_again(tmp_path: Path) -> None:
    """The last while consumers read, from a broker that was not there before."""
    with embedded(tmp_path / "data", 2, **three(tmp_path)) as brokers:
        make_topic(brokers, "disk")
        with Load(brokers) as load:
            for name in "abc":
                load.grows()
                lost = tmp_path / name
                lose(lost)
                load.grows()
                wait_for(partial(is_whole, brokers.data, lost))
        lose(tmp_path / "a")
        check_all_there(brokers, load.sent)


def test_what_was_spilled_is_read_when_the_stores_are_empty(tmp_path: Path) -> None:
    """No pipeline runs here at all."""
    with embedded(tmp_path / "data", 1, **three(tmp_path, spill_after_ms=300)) as brokers:
        make_topic(brokers, "disk")
        with Load(brokers) as load:
            load.grows(200)
        wait_for(lambda: not any(objects_in(tmp_path / name) for name in "abc"))
        assert objects_in(tmp_path / "data" / "bucket")
        for name in "abc":
            lose(tmp_path / name)
        check_all_there(brokers, load.sent)


def test_a_copy_out_of_reach_is_waited_for(tmp_path: Path) -> None:
    """All stores are away, as volumes that are not mounted: consumers are told to try again, nobody calls it lost."""
    with embedded(tmp_path / "data", 1, **three(tmp_path, keep_interval_ms=3_600_000)) as brokers:
        make_topic(brokers, "disk")
        with Load(brokers) as load:
            load.grows(100)
        for name in "abc":
            (tmp_path / name).rename(tmp_path / f"away-{name}")
            (tmp_path / name).mkdir()
        consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "early", "fetch.wait.max.ms": 100})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            for message in consumer.consume(10, 0.2):
                assert message.error() is not None
                assert message.error().retriable()
        consumer.close()
        for name in "abc":
            (tmp_path / name).rmdir()
            (tmp_path / f"away-{name}").rename(tmp_path / name)
        check_all_there(brokers, load.sent)


def test_stores_of_several_kinds_at_servers_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as one, s3_server() as other:
        for name, value in environment(one).items():
            if "ENDPOINT" not in name:
                monkeypatch.setenv(name, value)
        for address in (one, other):
            make_bucket(address, "wal")
        urls = [f"file://{tmp_path}/a", f"s3://wal?endpoint={one}", f"s3://wal/here?endpoint={other}"]
        with embedded(tmp_path / "data", 1, **three(tmp_path, stores=",".join(urls))) as brokers:
            make_topic(brokers, "disk")
            with Load(brokers) as load:
                load.grows(100)
                lose(tmp_path / "a")
                load.grows(100)
            check_all_there(brokers, load.sent)
