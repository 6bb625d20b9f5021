"""Questions to the live lake, `lakestream up` as it comes: keys in a long history beside a scan of it, the time from an
ack until the SQL door shows the record, and a hundred agents at once beside a producer.

The history is of Avro orders of 1 KB with a million customers as keys. Lookups and questions run while 10 MB/s come in.
The scan is the same question without the filters' help: it compares keys as text.
"""

import asyncio
import json
import multiprocessing
import random
import struct
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Final

import avro.io
import avro.schema
import psutil
from confluent_kafka import Producer
from mcp import Client

from benchmarks.fresh import HOST, TICK_S, make_topic, up, wait_for_door
from benchmarks.result import QUICK, Result, reaches, stays_under, versus
from benchmarks.servers import free_port

TOPIC: Final = "orders"
PARTITIONS: Final = 4
RECORDS: Final = 200_000 if QUICK else 2_000_000
CUSTOMERS: Final = 1_000_000
RATE_BYTES: Final = 10_000_000
VALUES: Final = 2_000
LOOKUPS: Final = 50 if QUICK else 300
SCANS: Final = 3 if QUICK else 5
SHOWN: Final = 30 if QUICK else 200
AGENTS: Final = 100
LOAD_S: Final = 8.0 if QUICK else 30.0
SETTLE_S: Final = 600.0
MIB: Final = 1 << 20
_SPAWN: Final = multiprocessing.get_context("spawn")
SCHEMA: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "item", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": "string"},
    ],
}


def run() -> list[Result]:
    kafka, http = free_port(), free_port()
    dice = random.Random(5)
    with tempfile.TemporaryDirectory(prefix="lakestream-bench-") as directory, up(directory, kafka, http) as process:
        make_topic(kafka, TOPIC, PARTITIONS, {"lakestream.value.format": "schema_id"})
        wait_for_door(http)
        values = _values(dice, _register(http))
        _fill(kafka, dice, values)
        _settle(http)
        with _load(kafka, dice, values):
            _ask(http, f"SELECT count(*) AS n FROM {TOPIC}")
            lookups = asyncio.run(_lookups(http, dice))
            scans = sorted(_timed(_ask, http, _scan(dice)) for _ in range(SCANS))
            shown = sorted(_shown(kafka, http, values, dice) for _ in range(SHOWN))
        alone = _throughput(kafka, dice, values)
        with _watched(process) as most_bytes:
            beside, answered = asyncio.run(_crowd(http, kafka, dice, values))
    told = {
        "lookup p50": _at(lookups, 0.5),
        "lookup p99": _at(lookups, 0.99),
        "scan": _at(scans, 0.5),
        "ack to shown p50": _at(shown, 0.5),
        "ack to shown p99": _at(shown, 0.99),
    }
    print(f"{RECORDS:,} records:", ", ".join(f"{name} {each * 1e3:.0f} ms" for name, each in told.items()))
    print(f"{AGENTS} agents: {answered} answers, {most_bytes[0] / MIB:.0f} MiB at most")
    return [
        versus("key lookups beside a scan, p50", _at(scans, 0.5), _at(lookups, 0.5), "s", at_least=20),
        stays_under("key lookup at 10 MB/s, p99", _at(lookups, 0.99), "s", at_most=0.3),
        stays_under("ack to shown by /sql at 10 MB/s, p99", _at(shown, 0.99), "s", at_most=0.3),
        versus(f"produce beside {AGENTS} agents", beside / 1e6, alone / 1e6, "MB/s", at_least=0.8),
        stays_under(f"memory of the door with {AGENTS} agents", most_bytes[0] / MIB, "MiB", at_most=3_000),
        reaches(f"answers to {AGENTS} agents", answered / LOAD_S, "1/s", at_least=1),
    ]


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _register(http: int) -> int:
    body = json.dumps({"schema": json.dumps(SCHEMA)}).encode()
    path = f"http://{HOST}:{http}/registry/subjects/{TOPIC}-value/versions"
    asked = urllib.request.Request(path, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return int(json.load(answer)["id"])


def _values(dice: random.Random, schema_id: int) -> list[bytes]:
    writer = avro.io.DatumWriter(avro.schema.parse(json.dumps(SCHEMA)))
    found = []
    for number in range(VALUES):
        sink = BytesIO(struct.pack(">bI", 0, schema_id))
        sink.seek(5)
        order = {
            "customer": f"c{number}",
            "item": f"item {number % 50}",
            "amount": dice.random() * 100,
            "note": dice.randbytes(450).hex(),
        }
        writer.write(order, avro.io.BinaryEncoder(sink))
        found.append(sink.getvalue())
    return found


def _key(dice: random.Random) -> str:
    return f"customer-{dice.randrange(CUSTOMERS):07d}"


def _producer(kafka: int) -> Producer:
    return Producer({"bootstrap.servers": f"{HOST}:{kafka}", "linger.ms": 5, "log_level": 0})


def _fill(kafka: int, dice: random.Random, values: list[bytes]) -> None:
    producer = _producer(kafka)
    for number in range(RECORDS):
        _send(producer, dice, values[number % VALUES])
    producer.flush(120)


def _send(producer: Producer, dice: random.Random, value: bytes) -> None:
    while True:
        try:
            producer.produce(TOPIC, value, key=_key(dice))
            return
        except BufferError:
            producer.poll(0.1)


def _settle(http: int) -> None:
    """Until the pipeline has moved what there is: before, the tail is more than questions look through."""
    asyncio.run(_moved(http))


async def _moved(http: int) -> None:
    deadline = time.monotonic() + SETTLE_S
    async with Client(f"http://{HOST}:{http}/mcp") as agent:
        while time.monotonic() < deadline:
            told = await agent.call_tool("describe", {"stream": TOPIC})
            if not told.is_error and (told.structured_content or {})["rows_in_table"] >= RECORDS:
                return
            await asyncio.sleep(2)
    raise SystemExit(f"the pipeline did not move {RECORDS:,} records in {SETTLE_S:.0f} s")


@contextmanager
def _load(kafka: int, dice: random.Random, values: list[bytes]) -> Iterator[None]:
    """An even one."""
    process = _SPAWN.Process(target=_evenly, args=(kafka, random.Random(dice.random()), values))
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _evenly(kafka: int, dice: random.Random, values: list[bytes]) -> None:
    producer = _producer(kafka)
    started_s, sent = time.perf_counter(), 0
    while True:
        due = int((time.perf_counter() - started_s) * RATE_BYTES / len(values[0]))
        for number in range(sent, due):
            _send(producer, dice, values[number % VALUES])
        sent = due
        producer.poll(0)
        time.sleep(TICK_S)


async def _called(agent: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await agent.call_tool(tool, arguments)
    if answer.is_error or answer.structured_content is None:
        raise SystemExit(f"{tool}: {answer.content}")
    return answer.structured_content


async def _lookups(http: int, dice: random.Random) -> list[float]:
    """Seconds of each, in order: of customers, some of whom never ordered."""
    found = []
    async with Client(f"http://{HOST}:{http}/mcp") as agent:
        for _ in range(LOOKUPS):
            started_s = time.perf_counter()
            await _called(agent, "latest", stream=TOPIC, key=_key(dice))
            found.append(time.perf_counter() - started_s)
    return sorted(found)


def _scan(dice: random.Random) -> str:
    return (
        f"SELECT _stream_partition, _offset, item, amount FROM {TOPIC} WHERE decode(_key) = '{_key(dice)}' "
        "ORDER BY _timestamp DESC LIMIT 1"
    )


def _ask(http: int, query: str) -> list[dict[str, Any]]:
    body = json.dumps({"query": query}).encode()
    asked = urllib.request.Request(f"http://{HOST}:{http}/sql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        rows: list[dict[str, Any]] = json.load(answer)["rows"]
        return rows


def _timed(work: Callable[..., Any], *arguments: Any) -> float:
    started_s = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started_s


def _shown(kafka: int, http: int, values: list[bytes], dice: random.Random) -> float:
    """From the ack of a record until an answer has it, seconds: of one question, for every question must have it."""
    acked: list[tuple[int, int, float]] = []
    producer = _producer(kafka)
    producer.produce(
        TOPIC,
        values[0],
        key=_key(dice),
        on_delivery=lambda _error, message: acked.append((message.partition(), message.offset(), time.perf_counter())),
    )
    producer.flush(30)
    [(partition, offset, acked_s)] = acked
    place = f"_stream_partition = {partition} AND _offset = {offset}"
    if _ask(http, f"SELECT count(*) AS n FROM {TOPIC} WHERE {place}") != [{"n": 1}]:
        raise SystemExit("a record that was acknowledged is not there")
    return time.perf_counter() - acked_s


def _throughput(kafka: int, dice: random.Random, values: list[bytes]) -> float:
    """Bytes per second of one producer, for a while: a process of its own, or agents would wait for it in this one."""
    with _SPAWN.Pool(1) as pool:
        return pool.apply(_flat_out, (kafka, dice, values))


def _flat_out(kafka: int, dice: random.Random, values: list[bytes]) -> float:
    producer = _producer(kafka)
    started_s, sent = time.perf_counter(), 0
    while time.perf_counter() - started_s < LOAD_S:
        for number in range(1_000):
            _send(producer, dice, values[number])
        sent += 1_000
        producer.poll(0)
    producer.flush(60)
    return sent * len(values[0]) / (time.perf_counter() - started_s)


async def _crowd(http: int, kafka: int, dice: random.Random, values: list[bytes]) -> tuple[float, int]:
    """A producer's bytes per second beside agents that ask, wait for the answer, think for a second and ask again; and
    how many answers there were."""
    answered = 0
    working = asyncio.create_task(asyncio.to_thread(_throughput, kafka, dice, values))

    async def agent(seed: int) -> None:
        nonlocal answered
        mine = random.Random(seed)
        async with Client(f"http://{HOST}:{http}/mcp") as asked:
            while not working.done():
                told = await asked.call_tool("latest", {"stream": TOPIC, "key": _key(mine)})
                answered += not told.is_error
                await asyncio.sleep(1)

    agents = [asyncio.create_task(agent(number)) for number in range(AGENTS)]
    found = await working
    await asyncio.gather(*agents)
    return found, answered


@contextmanager
def _watched(process: psutil.Process) -> Iterator[list[float]]:
    """The most memory that the door and its processes have taken meanwhile."""
    most, stop = [0.0], threading.Event()
    door = next(each for each in process.children(recursive=True) if "http" in each.cmdline())

    def look() -> None:
        while not stop.wait(0.2):
            total = 0
            for each in (door, *door.children(recursive=True)):
                try:
                    total += each.memory_info().rss
                except psutil.Error:
                    continue
            most[0] = max(most[0], total)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        stop.set()
        thread.join()
