"""The simulator owns the world of some rooms: time, chance and threads come to them through `Runtime` and asyncio."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "lakestream"
ROOMS = ("stream", "frontier", "metadata", "catalog", "wal", "coordination")
BACKENDS = {
    "catalog/external/hive.py",
    "catalog/threads.py",
    "metadata/stores/sqlite/store.py",
    "metadata/stores/sqlite/worker.py",
}
"""Real ones cross to threads of their own or to servers, and stay outside of every simulation."""

BANNED = {
    "_thread",
    "asyncio.run_coroutine_threadsafe",
    "asyncio.to_thread",
    "concurrent.futures",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "multiprocessing",
    "os.getrandom",
    "os.urandom",
    "random",
    "secrets",
    "subprocess",
    "threading",
    "time.clock_gettime",
    "time.clock_gettime_ns",
    "time.ctime",
    "time.gmtime",
    "time.localtime",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.process_time",
    "time.sleep",
    "time.strftime",
    "time.time",
    "time.time_ns",
    "uuid.getnode",
    "uuid.uuid1",
    "uuid.uuid4",
}
BANNED_METHODS = {"run_in_executor", "set_default_executor"}


def _is_banned(origin: str) -> bool:
    return any(origin == banned or origin.startswith(f"{banned}.") for banned in BANNED)


def _imports(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Line, the name that is imported (dotted if the import binds only its first part), and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.asname or alias.name, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                yield node.lineno, alias.asname or alias.name, f"{node.module}.{alias.name}"


def _origin(node: ast.AST, names: dict[str, str]) -> str | None:
    """The full name of what is read, whatever it was imported as."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _origin(node.value, names)
        return f"{owner}.{node.attr}" if owner is not None else None
    return None


def _found(source: str) -> list[str]:
    """Every use of what is banned, called or not."""
    tree = ast.parse(source)
    found = [(line, origin) for line, _, origin in _imports(tree) if _is_banned(origin)]
    names = {name.split(".")[0]: origin.split(".")[0] if "." in name else origin for _, name, origin in _imports(tree)}
    for node in ast.walk(tree):
        origin = _origin(node, names)
        if origin is not None and _is_banned(origin):
            found.append((node.lineno, origin))
        if isinstance(node, ast.Attribute) and node.attr in BANNED_METHODS:
            found.append((node.lineno, node.attr))
    return [f"{line}: {what}" for line, what in sorted(set(found))]


def _files(room: str) -> list[Path]:
    return [path for path in sorted((PACKAGE / room).rglob("*.py")) if str(path.relative_to(PACKAGE)) not in BACKENDS]


@pytest.mark.parametrize("room", ROOMS)
def test_time_chance_and_threads_are_arguments(room: str) -> None:
    files = _files(room)
    assert len(files) > 1
    assert {path.name: found for path in files if (found := _found(path.read_text()))} == {}


def test_backends_that_may_use_threads_exist() -> None:
    assert {name for name in BACKENDS if not (PACKAGE / name).is_file()} == set()


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time as clock\nclock.monotonic_ns()",
        "from time import perf_counter as now\nnow()",
        "import time\nclock = time.time",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime as moment\nmoment.utcnow()",
        "from datetime import date\ndate.today()",
        "import random",
        "from random import Random",
        "import uuid\nfield(default_factory=uuid.uuid4)",
        "from uuid import UUID, uuid4\nuuid4()",
        "import os\nos.urandom(8)",
        "from os import urandom as chance",
        "import secrets",
        "import threading\nthreading.Thread(target=print)",
        "from concurrent.futures import ThreadPoolExecutor",
        "import concurrent.futures",
        "import asyncio\nasyncio.to_thread(print)",
        "asyncio.get_running_loop().run_in_executor(None, print)",
        "def late():\n    from time import sleep\n    sleep(1)",
    ],
)
def test_every_way_to_reach_the_world_is_seen(source: str) -> None:
    assert _found(source) != []


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasyncio.sleep(1)\nasyncio.get_running_loop().time()",
        "from uuid import UUID\nUUID(int=1)",
        "import datetime\ndatetime.datetime.fromtimestamp(1, datetime.UTC)",
        "runtime.random.random()\nruntime.clock.now_ms()\nself.time.time()",
        "import os.path\nos.path.join('a', 'b')",
        "from lakestream.runtime import Runtime",
    ],
)
def test_what_is_allowed_is_left_alone(source: str) -> None:
    assert _found(source) == []
