"""A table that is behind its log says so, to engines and in `table query`; README's queries, as they stand."""

import json
import re
import struct
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog
from support.worlds.processes import ProcessWorld

README = Path(__file__).parents[3] / "README.md"
BATCH = b"x" * 50_000
SMALL_CUTS = {"LAKESTREAM_FRESH_MAX_BYTES": "300000", "LAKESTREAM_FRESH_TILE_BYTES": "100000"}
TOLD = {"lakestream.freshness", "lakestream.lag", "lakestream.end-offsets", "lakestream.as-of"}


def _fill(bootstrap: str, topic: str, values: list[bytes | None], *, partitions: int = 1, **config: str) -> None:
    """In batches of one record, each acked before the next."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    failures: list[Any] = []
    for number, value in enumerate(values):
        producer.produce(
            topic, value, partition=number % partitions, on_delivery=lambda error, _: failures.append(error)
        )
        assert producer.flush(30) == 0
    assert failures == [None] * len(values)


def test_an_answer_that_lacks_records_says_so_and_a_complete_one_does_not(
    cluster: Callable[..., ProcessWorld], cli: Any
) -> None:
    made = cluster(http=True, environment=SMALL_CUTS)
    _fill(made.bootstrap, "backlog", [BATCH] * 40, partitions=2)
    line = cli("table", "query", "SELECT count(*) AS n FROM backlog", "--json", "--catalog", made.catalog)
    assert line.returncode == 0, line.stderr
    assert json.loads(line.stdout)["n"] < 40
    assert re.search(
        r"warning backlog is not complete \(partial\): at 20\S+ \d+ of 40 records were not in its", line.stderr
    )

    catalog = RestCatalog("lake", uri=made.catalog)
    lags = []
    # The door cuts a table once a second at most: on a fast machine many loads see the same.
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        table = catalog.load_table("default.backlog")
        told = {name: value for name, value in table.properties.items() if name in TOLD}
        rows = table.scan().to_arrow().num_rows
        lags.append(int(told.get("lakestream.lag", 0)))
        assert rows + lags[-1] == 40
        if not told:
            break
        assert set(told) == TOLD
        assert (told["lakestream.freshness"], told["lakestream.end-offsets"]) == ("partial", "20,20")
        # Nothing of it is stored, and a commit by an engine does not bring it in.
        with table.transaction() as change:
            change.set_properties({"owner": f"load {len(lags)}"})
    assert lags[0] > 0
    assert lags[-1] == 0
    catalog.close()
    complete = cli("table", "query", "SELECT count(*) AS n FROM backlog", "--json", "--catalog", made.catalog)
    assert json.loads(complete.stdout)["n"] == 40
    assert complete.stderr == ""


def test_an_engine_that_keeps_metadata_hears_of_a_new_lag(cluster: Callable[..., ProcessWorld]) -> None:
    """With If-None-Match: the metadata is the same, what is told beside it is not."""
    made = cluster(http=True)
    _fill(made.bootstrap, "quiet", [b"a"], **{"lakestream.table.freshness.ms": "-1"})
    address = f"{made.catalog}/v1/namespaces/default/tables/quiet"

    def ask(tag: str = "") -> tuple[int, str, dict[str, str]]:
        request = urllib.request.Request(address, headers={"If-None-Match": tag} if tag else {})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.headers["ETag"], json.loads(answer.read())["metadata"]["properties"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["ETag"], {}

    status, tag, properties = ask()
    assert (status, properties["lakestream.freshness"], properties["lakestream.lag"]) == (200, "off", "1")
    assert ask(tag)[0] == 304
    producer = Producer({"bootstrap.servers": made.bootstrap})
    producer.produce("quiet", b"b")
    assert producer.flush(30) == 0
    status, _, properties = ask(tag)
    assert (status, properties["lakestream.lag"], properties["lakestream.end-offsets"]) == (200, "2", "2")


JUNK: list[bytes | None] = [
    *(b"no JSON at all", b"\xff\xfe\x00", b"", None, b"42", b"[1]", b"null"),
    *(b'{"item": ', b'{"item": {"a": 1}}', b'{"item": "tea", "amount": "much"}'),
    *(b'{"item": "tea", "amount": 2.5}', b'{"item": "tea", "amount": 2}'),
]


ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "item", "type": "string"}, {"name": "amount", "type": "double"}],
    }
)


def _order(schema_id: int, item: str, amount: float) -> bytes:
    """As Confluent's serializer writes it."""
    return struct.pack(">bI", 0, schema_id) + bytes([2 * len(item)]) + item.encode() + struct.pack("<d", amount)


def test_the_queries_of_the_readme_survive_values_of_any_kind(cluster: Callable[..., ProcessWorld], cli: Any) -> None:
    """The orders of its tour are Avro; a stranger's values lie between them."""
    made = cluster(http=True)
    with SchemaRegistryClient({"url": f"{made.catalog.removesuffix('/iceberg')}/registry"}) as registry:
        schema_id = registry.register_schema("orders-value", Schema(ORDER, "AVRO"))
    orders = [_order(schema_id, "tea", amount) for amount in (2.5, 2.0)]
    _fill(made.bootstrap, "orders", [orders[0], *JUNK, orders[1]], **{"lakestream.value.format": "schema_id"})
    readme = README.read_text()
    queries = re.findall(r"^\$ lakestream table query (['\"])(.*?)\1\n", readme, re.DOTALL | re.MULTILINE)
    assert queries, "README shows no query"
    for _, sql in queries:
        done = cli("table", "query", sql, "--json", "--catalog", made.catalog)
        assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["item"]: (row["orders"], row["revenue"]) for row in rows}["tea"] == (2, 4.5)

    [script] = re.findall(r"```sql\n-- DuckDB\n(.*?)```", readme, re.DOTALL)
    with duckdb.connect() as connection:
        for extension in ("avro", "httpfs", "iceberg"):
            import_extension(extension)
            connection.load_extension(extension)
        for statement in script.replace("http://127.0.0.1:8181/iceberg", made.catalog).split(";")[:-1]:
            found = connection.execute(statement).fetchall()
        assert [offset for offset, *_ in found] == [13, 12, 11, 10, 9]
