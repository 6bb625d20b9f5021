"""The newest row of each key of a raw topic, in a table of its own."""

from pathlib import Path

from support.worlds.derived import derived_world


async def test_a_key_has_its_newest_value_and_a_tombstone_takes_it_away(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic(lakestream__table__upsert="_key")
        await world.put(topic, 0, (b"a", b"1"), (b"b", b"1"), (None, b"nobody's"), (b"a", b"2"))
        await world.put(topic, 1, (b"c", b"1"), (b"d", b"1"))
        await world.settle()
        assert await world.latest() == {b"a": b"2", b"b": b"1", b"c": b"1", b"d": b"1"}
        await world.put(topic, 0, (b"b", None), (b"e", None), (b"a", b"3"))
        await world.put(topic, 1, (b"c", None), (b"c", b"again"))
        await world.settle()
        assert await world.latest() == {b"a": b"3", b"c": b"again", b"d": b"1"}
        view = await world.view()
        assert view is not None
        assert view.view.table == "default.orders__latest"
        assert view.view.frontier == (7, 4)
        assert view.view.location != ""


async def test_a_setting_on_an_old_topic_catches_up_in_bounded_steps(tmp_path: Path) -> None:
    async with derived_world(tmp_path) as world:
        topic = await world.topic()
        for number in range(6):
            await world.put(
                topic, number % 2, *((b"k%d" % key, b"%d-%d" % (number, key)) for key in range(number % 2, 50, 2))
            )
            await world.house.tick()
        await world.derive()
        assert await world.view() is None
        await world.configure(topic, lakestream__table__upsert="_key")
        done = await world.derive(derive_rows=20, derive_steps=2)
        assert [(each.records, each.commits) for each in done.done] == [(40, 2)]
        assert done.more
        await world.settle(derive_rows=20)
        assert await world.latest() == {b"k%d" % key: b"%d-%d" % (4 + key % 2, key) for key in range(50)}
