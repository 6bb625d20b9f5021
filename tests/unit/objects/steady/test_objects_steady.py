"""A steady store in simulated time: what is asked again, what is asked twice, and how throttling ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from random import Random

import pytest
from prometheus_client import CollectorRegistry
from simulator.loop import SimulatedLoop

from lakestream.errors import Conflict, ObjectMissing, StoreRefused, Throttled, Unavailable
from lakestream.metrics import ObjectMetrics
from lakestream.objects.measured import MeasuredObjects
from lakestream.objects.steady import Patience, SteadyObjects
from lakestream.objects.store import Buffer, ObjectInfo
from lakestream.runtime import Runtime, system

Script = Callable[["Scripted", str], Awaitable[None]]


class Scripted:
    """Implements `ObjectStore`: each request runs the script, which may wait and may raise, then does what it says."""

    url = "s3://bucket"

    def __init__(self, script: Script) -> None:
        self.script = script
        self.kept: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.under_way = self.most_under_way = 0

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        await self._ask("put")
        if key in self.kept and not overwrite:
            raise Conflict("exists")
        self.kept[key] = b"".join(bytes(part) for part in parts)

    async def get(self, key: str) -> bytes:
        await self._ask("get")
        return self.kept[key]

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> Buffer:
        await self._ask("range")
        return self.kept[key][start : start + length]

    async def get_tail(self, key: str, length: int) -> bytes:
        await self._ask("range")
        return self.kept[key][-length:]

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        for key in sorted(self.kept):
            if after is None or key > after:
                await self._ask("list")
                yield ObjectInfo(key, len(self.kept[key]), 0)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._ask("delete")
        for key in keys:
            self.kept.pop(key, None)

    async def _ask(self, operation: str) -> None:
        self.requests.append(operation)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.script(self, operation)
        finally:
            self.under_way -= 1


class Scene:
    def __init__(self, script: Script, patience: Patience = Patience()) -> None:  # noqa: B008
        self.registry = CollectorRegistry()
        self.bare = Scripted(script)
        metrics = ObjectMetrics(self.registry)
        runtime = Runtime(system().clock, Random(1))
        self.store = SteadyObjects(MeasuredObjects(self.bare, metrics), runtime, metrics, patience)

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


def run(work: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(_main(work))


async def _main(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def failing(times: int, error: Exception) -> Script:
    async def script(store: Scripted, operation: str) -> None:
        await asyncio.sleep(0.01)
        if len(store.requests) <= times:
            raise error

    return script


@pytest.mark.parametrize("error", [Unavailable("500"), Throttled("503")])
def test_what_fails_for_a_moment_is_asked_again(error: Exception) -> None:
    async def check() -> None:
        scene = Scene(failing(4, error))
        await scene.store.put("wal/a", [b"xy", b"z"])
        assert scene.bare.kept == {"wal/a": b"xyz"}
        assert scene.bare.requests == ["put"] * 5
        outcome = "throttled" if isinstance(error, Throttled) else "failed"
        labels = {"operation": "put", "purpose": "wal"}
        assert scene.metric("lakestream_store_requests_total", outcome=outcome, **labels) == 4
        assert scene.metric("lakestream_store_requests_total", outcome="ok", **labels) == 1
        assert scene.metric("lakestream_store_sent_bytes_total", purpose="wal") == 3
        assert scene.metric("lakestream_store_retries_total") == 4

    run(check)


@pytest.mark.parametrize("error", [StoreRefused("403"), ObjectMissing("404"), Conflict("412")])
def test_what_will_fail_again_is_told_at_once(error: Exception) -> None:
    async def check() -> None:
        scene = Scene(failing(99, error))
        with pytest.raises(type(error)):
            await scene.store.get("a")
        assert scene.bare.requests == ["get"]

    run(check)


def test_attempts_end_at_the_deadline() -> None:
    async def check() -> None:
        scene = Scene(failing(10**6, Unavailable("500")), Patience(deadline_ms=60_000))
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(Unavailable):
            await scene.store.delete(["a"])
        assert 50 < loop.time() - started <= 60
        assert 12 < len(scene.bare.requests) < 60

    run(check)


def test_a_minute_of_refusals_loses_nothing_and_is_met_with_fewer_requests() -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()

        async def throttle(store: Scripted, operation: str) -> None:
            await asyncio.sleep(0.05)
            if loop.time() - begun < 60:
                raise Throttled("503")

        scene = Scene(throttle, Patience(deadline_ms=120_000))
        await asyncio.gather(*(scene.store.put(f"wal/{n}", [b"x"]) for n in range(100)))
        assert sorted(scene.bare.kept) == sorted(f"wal/{n}" for n in range(100))
        assert len(scene.bare.requests) < 100 * 40
        assert scene.store._throttle.under_way == 0

    run(check)


def test_a_store_that_takes_four_at_a_time_gets_about_four() -> None:
    async def check() -> None:
        async def four(store: Scripted, operation: str) -> None:
            if store.under_way > 4:
                raise Throttled("503")
            await asyncio.sleep(0.1)

        scene = Scene(four)
        await asyncio.gather(*(scene.store.put(f"wal/{n}", [b"x"]) for n in range(400)))
        assert len(scene.bare.kept) == 400
        scene.bare.most_under_way = 0
        await asyncio.gather(*(scene.store.put(f"wal/later-{n}", [b"x"]) for n in range(40)))
        assert scene.bare.most_under_way <= 16
        assert scene.metric("lakestream_store_allowed_requests") <= 16

    run(check)


def test_a_calm_store_gets_all_its_requests_back() -> None:
    async def check() -> None:
        scene = Scene(failing(1, Throttled("503")), Patience(most_requests=8))
        await scene.store.put("a", [b"x"])
        assert scene.metric("lakestream_store_allowed_requests") < 8
        for _ in range(64):
            await scene.store.get("a")
        assert scene.metric("lakestream_store_allowed_requests") == 8

    run(check)


def test_a_listing_goes_on_behind_what_it_has_told() -> None:
    async def check() -> None:
        async def every_third(store: Scripted, operation: str) -> None:
            if operation == "list" and len(store.requests) % 3 == 0:
                raise Unavailable("500")

        scene = Scene(every_third)
        scene.bare.kept = {f"k{n:02d}": b"" for n in range(20)}
        assert [info.key async for info in scene.store.list("")] == sorted(scene.bare.kept)

    run(check)


def with_a_late_one(every: int, late_s: float, operation: str) -> Script:
    async def script(store: Scripted, asked: str) -> None:
        late = asked == operation and store.requests.count(asked) % every == 0
        await asyncio.sleep(late_s if late else 0.01)

    return script


def test_a_late_read_is_asked_twice_and_the_first_answer_counts() -> None:
    async def check() -> None:
        scene = Scene(with_a_late_one(50, 25.0, "range"))
        scene.bare.kept["wal/a"] = b"0123456789"
        loop = asyncio.get_running_loop()
        slowest = 0.0
        for _ in range(200):
            started = loop.time()
            assert await scene.store.get_range("wal/a", 2, 3) == b"234"
            slowest = max(slowest, loop.time() - started)
        assert slowest < 1
        assert scene.metric("lakestream_store_hedges_total", winner="second") == 4
        assert scene.store._throttle.under_way > 0, "who lost is not waited for, and holds its turn"
        await asyncio.sleep(30)
        assert scene.store._throttle.under_way == 0

    run(check)


def test_a_store_that_is_slow_as_a_whole_gets_few_second_requests() -> None:
    async def check() -> None:
        async def slower_and_slower(store: Scripted, operation: str) -> None:
            await asyncio.sleep(0.01 * 1.01 ** len(store.requests))

        scene = Scene(slower_and_slower)
        scene.bare.kept["wal/a"] = b"x" * 100
        for _ in range(600):
            await scene.store.get_tail("wal/a", 100)
        assert 600 < len(scene.bare.requests) <= 600 * 1.05 + 9

    run(check)


def test_a_write_is_never_asked_twice_at_once() -> None:
    async def check() -> None:
        scene = Scene(with_a_late_one(50, 25.0, "put"))
        for n in range(100):
            await scene.store.put(f"wal/{n}", [b"x"])
        assert scene.bare.requests == ["put"] * 100
        assert scene.bare.most_under_way == 1

    run(check)


def test_a_second_request_may_save_a_first_that_fails() -> None:
    async def check() -> None:
        async def script(store: Scripted, asked: str) -> None:
            if store.requests.count(asked) == 100:
                await asyncio.sleep(1.0)
                raise Unavailable("the connection broke")
            await asyncio.sleep(1.5 if store.requests.count(asked) == 101 else 0.01)

        scene = Scene(script)
        scene.bare.kept["a"] = b"x"
        for _ in range(100):
            assert await scene.store.get("a") == b"x"
        assert len(scene.bare.requests) == 101
        assert scene.metric("lakestream_store_retries_total") == 0

    run(check)


def test_a_read_that_is_given_up_holds_no_turn() -> None:
    async def check() -> None:
        scene = Scene(with_a_late_one(50, 25.0, "range"))
        scene.bare.kept["a"] = b"x"
        for _ in range(49):
            await scene.store.get_range("a", 0, 1)
        for pause_s in (0.0, 0.005, 0.5):
            read = asyncio.ensure_future(scene.store.get_range("a", 0, 1))
            await asyncio.sleep(pause_s)
            read.cancel()
            await asyncio.gather(read, return_exceptions=True)
        await asyncio.sleep(30)
        assert scene.store._throttle.under_way == 0

    run(check)
