"""The local object store beyond the contract: durability, leftovers, errors."""

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lakestream.errors import Conflict, ObjectMissing, Unavailable
from lakestream.objects import LocalObjects
from lakestream.objects.keys import TEMPORARY_FOLDER
from lakestream.objects.local import folders
from lakestream.objects.local import store as local


async def run(check: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(60):
        await check()


class Trace:
    """The calls that make a put durable, in order, with the names they were about."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self._root = root
        self._temporary = f"{root}/{TEMPORARY_FOLDER}/"
        fsync, link, replace, mkdir, writev = os.fsync, os.link, os.replace, os.mkdir, os.writev

        def wrap(name: str, call: Callable[..., Any], about: Callable[..., str]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                result = call(*args, **kwargs)
                self.calls.append(f"{name} {about(*args)}")
                return result

            return wrapped

        monkeypatch.setattr(os, "fsync", wrap("fsync", fsync, self._of_descriptor))
        monkeypatch.setattr(os, "writev", wrap("write", writev, lambda fd, parts: self._of_descriptor(fd)))
        monkeypatch.setattr(os, "link", wrap("name", link, lambda source, target: self._short(target)))
        monkeypatch.setattr(os, "replace", wrap("name", replace, lambda source, target: self._short(target)))
        monkeypatch.setattr(os, "mkdir", wrap("mkdir", mkdir, lambda path, *rest: self._short(path)))

    def _of_descriptor(self, descriptor: int) -> str:
        return self._short(os.readlink(f"/proc/self/fd/{descriptor}"))

    def _short(self, path: str) -> str:
        if path.startswith(self._temporary):
            return "temporary"
        return os.path.relpath(path, self._root)


linux = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="names of descriptors come from /proc")


@linux
@pytest.mark.parametrize("overwrite", [False, True])
async def test_bytes_are_synced_before_the_name_and_the_name_before_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    async def check() -> None:
        root = tmp_path / "data" / "bucket"
        trace = Trace(root, monkeypatch)
        store = LocalObjects(str(root))
        await store.put("wal/1/a", [b"one", b"two"], overwrite=overwrite)
        assert trace.calls == [
            "mkdir ..",
            "fsync ../..",
            "mkdir .",
            "fsync ..",
            f"mkdir {TEMPORARY_FOLDER}",
            "fsync .",
            "write temporary",
            "fsync temporary",
            "mkdir wal",
            "fsync .",
            "mkdir wal/1",
            "fsync wal",
            "name wal/1/a",
            "fsync wal/1",
        ]
        trace.calls.clear()
        await store.put("wal/1/b", [b"three"], overwrite=overwrite)
        assert trace.calls == ["write temporary", "fsync temporary", "name wal/1/b", "fsync wal/1"]

    await run(check)


@linux
async def test_folders_made_by_another_process_are_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        (tmp_path / "wal" / "1").mkdir(parents=True)
        trace = Trace(tmp_path, monkeypatch)
        await LocalObjects(str(tmp_path)).put("wal/1/a", [b"x"])
        synced = [call for call in trace.calls if call.startswith("fsync")]
        assert synced == ["fsync ..", "fsync .", "fsync temporary", "fsync .", "fsync wal", "fsync wal/1"]

    await run(check)


@linux
async def test_a_folder_that_was_removed_and_made_again_is_synced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        store, other = LocalObjects(str(tmp_path)), LocalObjects(str(tmp_path))
        await store.put("wal/1/a", [b"x"])
        await other.delete(["wal/1/a"])
        assert not (tmp_path / "wal").exists()
        (tmp_path / "wal" / "1").mkdir(parents=True)
        trace = Trace(tmp_path, monkeypatch)
        await store.put("wal/1/a", [b"y"])
        assert "fsync ." in trace.calls
        assert "fsync wal" in trace.calls

    await run(check)


@linux
async def test_nothing_appears_when_the_sync_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        store = LocalObjects(str(tmp_path))
        await store.put("a", [b"x"])

        def fail(descriptor: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", fail)
            with pytest.raises(Unavailable, match="Input/output error"):
                await store.put("b", [b"x"])
        with pytest.raises(ObjectMissing):
            await store.get("b")
        assert os.listdir(tmp_path / TEMPORARY_FOLDER) == []

    await run(check)


async def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        store = LocalObjects(str(tmp_path))
        writev = os.writev

        def full(descriptor: int, parts: Sequence[memoryview]) -> int:
            if len(parts[0]) > 3:
                return writev(descriptor, [parts[0][:3]])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as broken:
            broken.setattr(os, "writev", full)
            with pytest.raises(Unavailable, match="No space left"):
                await store.put("a", [b"12345"])
        assert os.listdir(tmp_path / TEMPORARY_FOLDER) == []
        await store.put("a", [b"12345"])
        assert await store.get("a") == b"12345"

    await run(check)


async def test_short_writes_and_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        store = LocalObjects(str(tmp_path))
        writev, pread = os.writev, os.pread
        monkeypatch.setattr(os, "writev", lambda fd, parts: writev(fd, [parts[0][:7]]))
        monkeypatch.setattr(os, "pread", lambda fd, length, start: pread(fd, min(length, 5), start))
        parts = [bytes([n]) * n for n in range(30)]
        await store.put("a", parts)
        whole = b"".join(parts)
        assert await store.get("a") == whole
        assert await store.get_range("a", 3, 200) == whole[3:203]

    await run(check)


async def test_unfinished_objects_are_not_listed_and_old_ones_are_removed(tmp_path: Path) -> None:
    async def check() -> None:
        await LocalObjects(str(tmp_path)).put("a", [b"x"])
        old, young = (tmp_path / TEMPORARY_FOLDER / name for name in ("old", "young"))
        for leftover in (old, young):
            leftover.write_bytes(b"x")
        os.utime(old, (0, 0))
        store = LocalObjects(str(tmp_path))
        assert [info.key async for info in store.list("")] == ["a"]
        await store.put("b", [b"x"])
        assert os.listdir(tmp_path / TEMPORARY_FOLDER) == ["young"]

    await run(check)


async def test_a_killed_put_leaves_no_object(tmp_path: Path) -> None:
    script = (
        "import asyncio, os, signal, sys\n"
        "from lakestream.objects import LocalObjects\n"
        "def fsync(descriptor):\n"
        "    if os.fstat(descriptor).st_size == 7:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.fsync = fsync\n"
        "asyncio.run(LocalObjects(sys.argv[1]).put('wal/a', [b'seven b']))\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=60)
    assert killed.returncode == -9

    async def check() -> None:
        store = LocalObjects(str(tmp_path))
        assert len(os.listdir(tmp_path / TEMPORARY_FOLDER)) == 1
        assert [info async for info in store.list("")] == []
        await store.put("wal/a", [b"again"])

    await run(check)


async def test_a_name_below_an_object_is_a_conflict(tmp_path: Path) -> None:
    async def check() -> None:
        store = LocalObjects(str(tmp_path))
        await store.put("a", [b"x"])
        await store.put("b/c", [b"x"])
        for key in ("a/b", "a/b/c", "b"):
            for overwrite in (False, True):
                with pytest.raises(Conflict):
                    await store.put(key, [b"y"], overwrite=overwrite)
        assert [info.key async for info in store.list("")] == ["a", "b/c"]

    await run(check)


async def test_folders_go_with_their_last_object(tmp_path: Path) -> None:
    async def check() -> None:
        store = LocalObjects(str(tmp_path))
        for key in ("wal/1/a", "wal/1/b", "wal/2/c/d"):
            await store.put(key, [b"x"])
        await store.delete(["wal/1/a", "wal/2/c/d"])
        assert sorted(os.listdir(tmp_path / "wal")) == ["1"]
        await store.delete(["wal/1/b"])
        assert os.listdir(tmp_path) == [TEMPORARY_FOLDER]

    await run(check)


async def test_puts_and_deletes_may_race_for_a_folder(tmp_path: Path) -> None:
    async def check() -> None:
        first, second = LocalObjects(str(tmp_path)), LocalObjects(str(tmp_path))

        async def churn(store: LocalObjects, name: str) -> None:
            for n in range(40):
                await store.put(f"wal/1/{name}{n}", [b"x"])
                await store.delete([f"wal/1/{name}{n}"])

        await asyncio.gather(churn(first, "a"), churn(first, "b"), churn(second, "c"), churn(second, "d"))
        assert [info async for info in first.list("")] == []

    await run(check)


async def test_the_root_may_be_removed_and_comes_back(tmp_path: Path) -> None:
    async def check() -> None:
        store = LocalObjects(str(tmp_path / "bucket"))
        assert [info async for info in store.list("")] == []
        await store.put("a/b", [b"x"])
        shutil.rmtree(tmp_path / "bucket")
        await store.put("a/b", [b"y"])
        assert await store.get("a/b") == b"y"

    await run(check)


async def test_known_folders_are_bounded_and_their_descriptors_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "KNOWN_FOLDERS", 4)

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def check() -> None:
        store = LocalObjects(str(tmp_path))
        before = descriptors()
        for n in range(20):
            await store.put(f"{n}/a", [b"x"])
        assert descriptors() <= before + 4
        for n in range(20):
            assert await store.get(f"{n}/a") == b"x"

    await run(check)


async def test_listing_is_read_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LIST_PAGE", 3)

    async def check() -> None:
        store = LocalObjects(str(tmp_path))
        stored = [f"{n // 4}/{n:03d}" for n in range(12)]
        for key in stored:
            await store.put(key, [b"x"])
        assert [info.key async for info in store.list("")] == stored

    await run(check)
