"""Arrow Flight SQL: ADBC and JDBC clients at a port of their own, over the same queries and citations."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import msgspec
import pyarrow as pa
import pytest
import requests
from pyarrow import flight
from support.clients.asking import Asker
from support.schemas.typed import ORDER, order, typed_topic
from support.servers.flight import jdbc_driver
from support.worlds.doors import http_door
from support.worlds.processes import HOST, Running, free_ports
from support.worlds.source import Node, source_node

from lakestream.flight.commands import pack

Start = Callable[..., Running]

JDBC = (Path(__file__).parent / "Flight.java").read_text()
RUNAWAY = "SELECT max(sha256(range::VARCHAR)) AS m FROM range(1000000000000)"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flight")


@pytest.fixture(scope="module")
def node(data: Path) -> Iterator[Node]:
    with source_node(data) as opened:
        yield opened


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)


@pytest.fixture(scope="module")
def door(node: Node, data: Path, port: int) -> Iterator[Asker]:
    limits = {"query.timeout_ms": 20_000, "query.most_rows": 5_000, "query.answer_bytes": 4 << 20}
    with http_door(data, **{"flight.port": port}, **limits) as address:
        yield Asker(address)


@pytest.fixture
def client(door: Asker, port: int) -> Iterator[adbc.Connection]:
    with adbc.connect(f"grpc://{HOST}:{port}", autocommit=True) as opened:
        yield opened


def rows(client: adbc.Connection, query: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    with client.cursor() as cursor:
        cursor.execute(query, parameters)
        return cursor.fetchall()


def refusal(client: adbc.Connection, query: str, parameters: Any = None) -> str:
    with pytest.raises(adbc_driver_manager.Error) as refused:
        rows(client, query, parameters)
    assert "Traceback" not in str(refused.value)
    assert ".py" not in str(refused.value)
    return str(refused.value)


def test_what_was_just_acked_is_there_and_cited(node: Node, door: Asker, client: adbc.Connection) -> None:
    node.create("orders", 2)
    node.produce("orders", 10)
    node.move()
    node.produce("orders", 3, partition=1)
    query = "SELECT _stream_partition AS p, _offset AS o, decode(_value) AS v FROM orders ORDER BY p, o"
    wanted = [(0, n, f"0-{n}") for n in range(10)] + [(1, n, f"1-{n}") for n in range(3)]
    with client.cursor() as cursor:
        cursor.execute(query)
        reader = cursor.fetch_record_batch()
        token = reader.schema.metadata[b"lakestream.citation"].decode()
        assert [tuple(each.values()) for each in reader.read_all().to_pylist()] == wanted
    shown = door.replay(token)
    assert [tuple(each.values()) for each in shown["rows"]] == wanted
    assert shown["citation"]["query"] == query


def test_prepared_statements_take_parameters(node: Node, client: adbc.Connection) -> None:
    node.create("asked", 1)
    node.produce("asked", 20)
    count = "SELECT count(*) AS n FROM asked WHERE _offset >= ? AND decode(_value) <> ?"
    assert rows(client, count, (5, "0-7")) == [(14,)]
    assert rows(client, count, (18, "x")) == [(2,)]
    assert rows(client, "SELECT count(*) AS n FROM asked WHERE _key = encode(?)", ("k3",)) == [(1,)]
    assert rows(client, "SELECT ? AS a, ? AS b, ? AS c", (1.5, None, True)) == [(1.5, None, True)]
    before = "SELECT count(*) AS n FROM asked WHERE _timestamp < ?"
    assert rows(client, before, ("2023-11-14T22:13:22Z",)) == [(2,)]
    assert "takes one row of 2 values" in refusal(client, count, (1,))
    with client.cursor() as cursor:
        cursor.adbc_statement.set_sql_query(count)
        cursor.adbc_statement.prepare()
        wanted = cursor.adbc_statement.get_parameter_schema()
    assert wanted is not None


def test_tools_find_catalogs_schemas_tables_and_columns(node: Node, client: adbc.Connection) -> None:
    with typed_topic(node, "typed") as topic:
        serialize = topic.avro(ORDER)
        topic.produce([serialize(order(number)) for number in range(6)])
        topic.move()
        [catalog] = client.adbc_get_objects(depth="all", table_name_filter="typ%").read_all().to_pylist()
        assert catalog["catalog_name"] == "lakestream"
        found = {each["db_schema_name"]: each["db_schema_tables"] for each in catalog["catalog_db_schemas"]}
        [table] = found["default"]
        names = [each["column_name"] for each in table["table_columns"]]
        assert {"id", "item", "amount", "_offset", "_key"} <= set(names)
        assert client.adbc_get_table_schema("typed", db_schema_filter="default").names == names
        assert client.adbc_get_table_types() == ["TABLE"]
        assert client.adbc_get_info()["vendor_name"] == "Lakestream"
        assert rows(client, 'SELECT item FROM lakestream."default".typed WHERE id = 4') == [("item 1",)]


def test_refusals_say_why_and_nothing_of_the_machine(node: Node, client: adbc.Connection) -> None:
    node.create("large", 1)
    node.produce("large", 6_000)
    assert "unknown_table" in refusal(client, "SELECT * FROM nothing")
    assert "query_refused" in refusal(client, "DELETE FROM large")
    assert "query_refused" in refusal(client, "SELECT * FROM read_csv('/etc/passwd')")
    assert "query_refused" in refusal(client, "SELEC 1")
    assert "query_refused" in refusal(client, "SELECT 1; SELECT 2")
    assert "more than 5000 rows" in refusal(client, "SELECT _offset FROM large"), "never cut off in silence"
    assert "query_limit" in refusal(client, "SELECT repeat('x', 1000000) || range AS x FROM range(10)")
    with client.cursor() as cursor, pytest.raises(adbc_driver_manager.Error):
        cursor.adbc_ingest("large", pa.table({"a": [1]}), mode="append")


def test_what_is_no_flight_sql_is_refused(door: Asker, port: int) -> None:
    with flight.connect(f"grpc://{HOST}:{port}") as plain:
        for command in (b"", b"nonsense", b"\xff" * 100):
            with pytest.raises(flight.FlightError, match=r"bad_request"):
                plain.get_flight_info(flight.FlightDescriptor.for_command(command))
            with pytest.raises(flight.FlightError, match=r"bad_request"):
                plain.do_get(flight.Ticket(command)).read_all()
        with pytest.raises(flight.FlightError, match=r"bad_request"):
            list(plain.do_action(flight.Action("BeginTransaction", b"")))
        assert [each.type for each in plain.list_actions()] == ["CreatePreparedStatement", "ClosePreparedStatement"]


def test_a_client_that_goes_takes_its_query_along(node: Node, door: Asker, port: int) -> None:
    node.create("idle", 1)
    node.produce("idle", 1)

    def ask() -> None:
        with adbc.connect(f"grpc://{HOST}:{port}", autocommit=True) as client, client.cursor() as cursor:
            threading.Timer(1.0, cursor.adbc_cancel).start()
            with pytest.raises(adbc_driver_manager.Error):
                cursor.execute(RUNAWAY).fetchall()

    began = time.monotonic()
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    assert door.value("SELECT count(*) FROM idle") == 1, "both processes are free again"
    assert time.monotonic() - began < 15


def test_a_door_that_stops_ends_what_is_asked_and_waits_for_no_reader(node: Node, start: Start, data: Path) -> None:
    http, port = free_ports(2), free_ports(1)
    arguments = ("http", "--data", str(data), "--port", str(http), "--flight-port", str(port))
    door = start(*arguments)
    while True:
        try:
            requests.get(f"http://{HOST}:{http}/health", timeout=5)
            break
        except requests.ConnectionError:
            assert door.process.poll() is None, door.output
            time.sleep(0.1)
    with flight.connect(f"grpc://{HOST}:{port}") as plain:
        unread = plain.do_get(ticket("SELECT range, repeat('x', 1000) AS x FROM range(10000)"))
        assert unread.schema.names == ["range", "x"]
        failures: list[str] = []

        def ask() -> None:
            try:
                plain.do_get(ticket(RUNAWAY)).read_all()
            except flight.FlightError as error:
                failures.append(str(error))

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(1.0)
        began = time.monotonic()
        door.stop()
        assert time.monotonic() - began < 45
        thread.join(20)
        assert len(failures) == 1
        unread.cancel()


def ticket(query: str) -> flight.Ticket:
    statement = msgspec.msgpack.encode([query, [], []])
    return flight.Ticket(pack("TicketStatementQuery", statement_handle=statement))


@pytest.mark.slow
@pytest.mark.java
def test_jdbc(node: Node, door: Asker, port: int, java: str, tmp_path: Path) -> None:
    driver = jdbc_driver()
    if driver is None:
        pytest.skip("Arrow's JDBC driver (LAKESTREAM_FLIGHT_JARS) is missing: `make test-all` fetches it")
    node.create("jdbc", 1)
    node.produce("jdbc", 5)
    source = tmp_path / "Flight.java"
    source.write_text(JDBC)
    command = [java, "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", driver, str(source)]
    command += [f"jdbc:arrow-flight-sql://{HOST}:{port}?useEncryption=false"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "Lakestream",
        "row 3 0-3",
        "row 4 0-4",
        "prepared 2",
        "table lakestream default jdbc TABLE",
        "column _offset BIGINT",
        "refused true",
    ]
