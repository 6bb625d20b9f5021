"""What every object store must do. One line per backend in `BACKENDS`, which have URLs; the simulated one has none."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from conftest import need
from hypothesis import given
from hypothesis import strategies as st
from simulator.backends import SimulatedObjects
from support.fakes import simulated
from support.properties import examples
from support.servers.emulators import Emulator, azure, gcs, tool, versitygw
from support.servers.s3 import environment, make_bucket, s3_server

from lakestream import objects
from lakestream.errors import Conflict, CorruptObject, ObjectMissing, RequestError
from lakestream.objects import ObjectStore

Check = Callable[[], Awaitable[None]]
Run = Callable[[Check], None]

BACKENDS: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "file": lambda request: f"file://{request.getfixturevalue('tmp_path')}/new/bucket",
    "memory": lambda request: f"memory://{uuid4()}",
    "s3": lambda request: f"s3://{request.getfixturevalue('bucket')}/some/prefix",
    "s3, ends at once": lambda request: f"s3://{request.getfixturevalue('bucket')}/some/prefix",
    "versitygw": lambda request: emulated(request, "versitygw"),
    "azure": lambda request: emulated(request, "azure"),
    "gcs": lambda request: emulated(request, "gcs"),
}
EMULATORS = {"versitygw": (versitygw, "versitygw"), "azure": (azure, "azurite-blob"), "gcs": (gcs, "fake-gcs-server")}
"""How each is started, and the program that it needs."""


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(s3_address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"bucket-{uuid4()}"
    make_bucket(s3_address, name)
    for variable, value in environment(s3_address).items():
        monkeypatch.setenv(variable, value)
    return name


@pytest.fixture(scope="session")
def emulators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Emulator]]:
    """Each is started when it is first asked for."""
    running: dict[str, Emulator] = {}
    with ExitStack() as stack:

        def started(name: str) -> Emulator:
            if name not in running:
                start, program = EMULATORS[name]
                found = need(tool(program), f"{program} (LAKESTREAM_STORE_TOOLS)")
                running[name] = stack.enter_context(start(found, tmp_path_factory.mktemp(name)))
            return running[name]

        yield started


def emulated(request: pytest.FixtureRequest, name: str) -> str:
    emulator: Emulator = request.getfixturevalue("emulators")(name)
    bucket = f"bucket-{uuid4()}"
    emulator.make_bucket(bucket)
    for variable, value in emulator.environment.items():
        request.getfixturevalue("monkeypatch").setenv(variable, value)
    return f"{emulator.scheme}://{bucket}/some/prefix"


@pytest.fixture(
    params=[
        *(pytest.param(name, marks=pytest.mark.slow if name in EMULATORS else ()) for name in BACKENDS),
        "simulated",
    ]
)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def runner(backend: str) -> Iterator[asyncio.Runner]:
    with simulated.runner(backend) as runner:
        yield runner


@pytest.fixture
def store(request: pytest.FixtureRequest, backend: str, runner: asyncio.Runner) -> ObjectStore:
    if backend == "simulated":
        return SimulatedObjects(simulated.calm_world(runner.get_loop()))
    return objects.open(BACKENDS[backend](request), ends_at_once=backend.endswith("ends at once"))


@pytest.fixture
def run(runner: asyncio.Runner) -> Run:
    return lambda check: runner.run(_in_time(check))


async def _in_time(check: Check) -> None:
    async with asyncio.timeout(60):
        await check()


async def keys(listing: AsyncIterator[objects.ObjectInfo]) -> list[str]:
    return [info.key async for info in listing]


def test_parts_are_stored_one_after_the_other(run: Run, store: ObjectStore) -> None:
    async def check() -> None:
        data = bytes(range(256)) * 20
        parts = [data[:1], bytearray(data[1:700]), b"", memoryview(data)[700:], memoryview(bytearray(b"end"))]
        await store.put("wal/1/a.wal", parts)
        assert await store.get("wal/1/a.wal") == data + b"end"

    run(check)


def test_many_parts(run: Run, store: ObjectStore) -> None:
    async def check() -> None:
        parts = [n.to_bytes(2, "big") * (n % 5) for n in range(5000)]
        await store.put("many", parts)
        assert await store.get("many") == b"".join(parts)

    run(check)


def test_empty_objects(run: Run, store: ObjectStore) -> None:
    async def check() -> None:
        await store.put("none", [])
        await store.put("empty", [b""])
        for key in ("none", "empty"):
            assert await store.get(key) == b""
            assert await store.get_range(key, 0, 0) == b""
            assert await store.get_tail(key, 10) == b""
        assert [(info.key, info.size_bytes) async for info in store.list("")] == [("empty", 0), ("none", 0)]

    run(check)


@pytest.mark.parametrize("once", [False, True])
def test_ranges_are_exact(run: Run, store: ObjectStore, once: bool) -> None:
    async def check() -> None:
        await store.put("a", [b"0123456789"])
        assert await store.get_range("a", 0, 10, once=once) == b"0123456789"
        assert await store.get_range("a", 3, 4, once=once) == b"3456"
        assert await store.get_range("a", 9, 1, once=once) == b"9"
        assert await store.get_range("a", 5, 0, once=once) == b""
        for start, length in ((0, 11), (9, 2), (10, 1), (1000, 5)):
            with pytest.raises(CorruptObject, match=f"{store.url}/a is too short"):
                await store.get_range("a", start, length, once=once)

    run(check)


def test_large_ranges_are_read_side_by_side_and_may_be_given_up(run: Run, store: ObjectStore) -> None:
    data = bytes(range(256)) * 8192

    async def check() -> None:
        await store.put("a", [data])
        starts = [position * 1001 for position in range(30)]
        length = len(data) - starts[-1]
        found = await asyncio.gather(*(store.get_range("a", start, length, once=True) for start in starts))
        assert [bytes(each) for each in found] == [data[start : start + length] for start in starts]
        given_up = [asyncio.ensure_future(store.get_range("a", 0, len(data), once=True)) for _ in range(8)]
        with pytest.raises(ObjectMissing):
            await store.get_range("nothing", 0, 1, once=True)
        for read in given_up:
            read.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        assert await store.get_range("a", 0, len(data), once=True) == data

    run(check)


def test_tails_are_what_there_is(run: Run, store: ObjectStore) -> None:
    async def check() -> None:
        await store.put("a", [b"0123456789"])
        assert await store.get_tail("a", 3) == b"789"
        assert await store.get_tail("a", 10) == b"0123456789"
        assert await store.get_tail("a", 65536) == b"0123456789"

    run(check)


def test_missing_objects_are_named(run: Run, store: ObjectStore) -> None:
    async def check() -> None:
        await store.put("a/b/c", [b"x"])
        for key in ("nothing", "a/nothing", "a/b", "a/b/c/d"):
            for read in (
                store.get(key),
                store.get_range(key, 0, 1),
                store.get_range(key, 0, 1, once=True),
                store.get_tail(key, 1),
            ):
                with pytest.raises(ObjectMissing, match=f"{store.url}/{key} does not exist"):
                    await read

    run(check)


def test_an_existing_object_is_not_replaced(run: Run, store: ObjectStore) -> None:
    async def check() -> None:
        await store.put("a/b", [b"first"])
        with pytest.raises(Conflict, match=f"{store.url}/a/b exists already"):
            await store.put("a/b", [b"second"])
        assert await store.get("a/b") == b"first"
        await store.put("a/b", [b"third"], overwrite=True)
        assert await store.get("a/b") == b"third"
        await store.put("a/new", [b"x"], overwrite=True)
        assert await keys(store.list("a")) == ["a/b", "a/new"]

    run(check)


def test_one_of_many_rivals_creates_an_object(run: Run, store: ObjectStore) -> None:
    async def check() -> None:
        rivals = [f"rival {n}".encode() * 100 for n in range(8)]
        puts = (store.put("x/y/z", [rival]) for rival in rivals)
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        winners = [rival for rival, outcome in zip(rivals, outcomes, strict=True) if outcome is None]
        assert [type(outcome) for outcome in outcomes].count(Conflict) == len(rivals) - 1
        assert [await store.get("x/y/z")] == winners

    run(check)


def test_listing_is_in_key_order_and_by_whole_segments(run: Run, store: ObjectStore) -> None:
    async def check() -> None:
        stored = ["a-b/1", "a/1", "a/1-2", "a/1.x/y", "a/2/z", "a0", "ab/c", "b", "a/10", "é/1"]
        for number, key in enumerate(stored):
            await store.put(key, [b"x" * number])
        assert await keys(store.list("")) == sorted(stored, key=str.encode)
        below = ["a/1", "a/1-2", "a/1.x/y", "a/10", "a/2/z"]
        for prefix in ("a/", "a"):
            assert await keys(store.list(prefix)) == below
        for position, key in enumerate(below):
            assert await keys(store.list("a", after=key)) == below[position + 1 :]
        assert await keys(store.list("a", after="a/1.")) == below[2:]
        assert await keys(store.list("", after="a/2")) == ["a/2/z", "a0", "ab/c", "b", "é/1"]
        assert await keys(store.list("b/")) == await keys(store.list("none")) == []
        sizes = {info.key: info.size_bytes async for info in store.list("")}
        assert sizes == {key: number for number, key in enumerate(stored)}

    run(check)


def test_listing_tells_when_an_object_was_written(run: Run, store: ObjectStore) -> None:
    async def check() -> None:
        await store.put("a", [b"x"])
        (first,) = [info async for info in store.list("")]
        assert 1_600_000_000_000 < first.modified_ms < 10_000_000_000_000

    run(check)


def test_deleting_while_listing(run: Run, store: ObjectStore) -> None:
    async def check() -> None:
        stored = [f"wal/{folder:04d}/{n}" for folder in range(3) for n in range(3)]
        for key in stored:
            await store.put(key, [b"x"])
        seen = []
        async for info in store.list("wal/"):
            seen.append(info.key)
            await store.delete([info.key])
        assert seen == stored
        assert await keys(store.list("")) == []

    run(check)


def test_delete_takes_missing_objects_lightly(run: Run, store: ObjectStore) -> None:
    async def check() -> None:
        for key in ("a/1", "a/2", "a/b/3", "ab"):
            await store.put(key, [b"x"])
        await store.delete([])
        await store.delete(["none", "a/1", "a/none/x", "a/1/y", "a", "a/b/3"])
        await store.delete(["a/1"])
        assert await keys(store.list("")) == ["a/2", "ab"]
        await store.put("a/1", [b"again"])
        assert await store.get("a/1") == b"again"

    run(check)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "../a",
        "a/../b",
        "a/..",
        "./a",
        "a\x00b",
        "a\\..\\b",
        ".lakestream-tmp/x",
    ],
)
def test_names_that_lead_elsewhere_are_refused(run: Run, store: ObjectStore, key: str) -> None:
    async def check() -> None:
        for attempt in (store.put(key, [b"x"]), store.get(key), store.get_range(key, 0, 1), store.get_tail(key, 1)):
            with pytest.raises(RequestError):
                await attempt
        with pytest.raises(RequestError):
            await store.delete(["fine", key])
        if ".." in key:
            with pytest.raises(RequestError):
                await keys(store.list(key))

    run(check)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name not in EMULATORS], indirect=True)
def test_opening_the_same_url_again_shows_the_same_objects(run: Run, store: ObjectStore) -> None:
    async def check() -> None:
        await store.put("a/b", [b"x"])
        again = objects.open(store.url)
        assert again.url == store.url
        assert await again.get("a/b") == b"x"

    run(check)


@pytest.mark.parametrize("url", ["", "bucket", "file://relative/path", "ftp://host/x", "s3://", "/absolute"])
def test_urls_that_are_no_bucket(url: str) -> None:
    with pytest.raises(RequestError, match="is no bucket"):
        objects.open(url)


@examples(25, derandomize=True)
@given(
    stored=st.lists(st.lists(st.sampled_from(["a", "b", "a-", "a0", "é"]), min_size=1, max_size=3), max_size=8),
    prefix=st.lists(st.sampled_from(["a", "b", "a-"]), max_size=2),
    after=st.none() | st.lists(st.sampled_from(["a", "b", "a-", "a0"]), min_size=1, max_size=3),
)
async def test_local_listing_is_that_of_a_bucket(
    tmp_path_factory: pytest.TempPathFactory, stored: list[list[str]], prefix: list[str], after: list[str] | None
) -> None:
    names = sorted({"/".join(segments) + "/leaf" for segments in stored})
    folder: Path = tmp_path_factory.mktemp("listing")
    found = []
    for store in (objects.open(f"file://{folder}"), objects.open(f"memory://{folder}")):
        for name in names:
            await store.put(name, [b"x"])
        found.append(await keys(store.list("/".join(prefix), after=after and "/".join(after))))
    assert found[0] == found[1]
