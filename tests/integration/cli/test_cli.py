"""The client commands against a real broker, and help and sentences without one."""

import json
import subprocess
import sys

import pytest

NOBODY = "127.0.0.1:9"


@pytest.mark.parametrize(
    "command",
    ["up", "topic", "produce", "consume", "table", "demo", "schema", "topic create", "table query"],
)
def test_help_explains_itself(cli, command: str) -> None:
    done = cli(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: lakestream" in done.stdout
    assert "--help" in done.stdout


def test_the_overview_imports_nothing_heavy() -> None:
    watch = "import sys; sys.argv=['lakestream','--help']; from lakestream.cli import main"
    code = f"{watch}\ntry:\n    main()\nexcept SystemExit:\n    pass\nprint(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stderr.replace("'", '"')))
    assert "typer" in loaded
    assert loaded.isdisjoint({"pyspark", "numba", "pyarrow", "pyiceberg", "duckdb", "confluent_kafka", "kio"})


@pytest.mark.parametrize("command", ["topic", "produce", "consume", "demo"])
def test_client_commands_are_light(command: str) -> None:
    code = f"import sys, lakestream.cli.clients.{command}; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout.replace("'", '"')))
    assert loaded.isdisjoint({"pyspark", "numba", "pyarrow", "pyiceberg", "kio"})


def test_an_unknown_command_is_one_message(cli) -> None:
    done = cli("topik")
    assert done.returncode == 2
    assert "No such command" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("topic", "list"), ("consume", "orders")])
def test_no_broker_is_one_sentence(cli, command: tuple[str, ...]) -> None:
    done = cli(*command, "--bootstrap", NOBODY)
    assert done.returncode == 1
    assert f"no broker answers at {NOBODY}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("table", "describe", "orders"), ("table", "query", "SELECT 1")])
def test_no_catalog_is_one_sentence(cli, command: tuple[str, ...]) -> None:
    done = cli(*command, "--catalog", "http://127.0.0.1:9/iceberg")
    assert done.returncode == 1
    assert "no catalog answers" in done.stderr
    assert "Traceback" not in done.stderr


def test_topics_from_birth_to_death(cli, cluster) -> None:
    where = ("--bootstrap", cluster().bootstrap)
    assert json.loads(cli("topic", "list", "--json", *where).stdout) == []
    assert json.loads(cli("topic", "create", "orders", "-p", "3", "--json", *where).stdout)["partitions"] == 3
    again = cli("topic", "create", "orders", *where)
    assert again.returncode == 1
    assert "was not created" in again.stderr
    assert json.loads(cli("topic", "list", "--json", *where).stdout) == [{"topic": "orders", "partitions": 3}]
    assert "orders" in cli("topic", "list", *where).stdout
    assert cli("topic", "delete", "orders", "--yes", *where).returncode == 0
    assert json.loads(cli("topic", "list", "--json", *where).stdout) == []
    gone = cli("topic", "describe", "orders", *where)
    assert gone.returncode == 1
    assert "there is no topic 'orders'" in gone.stderr
    assert json.loads(cli("topic", "list", "--json", *where).stdout) == [], "asking must not create it"


def test_what_is_produced_is_consumed(cli, cluster) -> None:
    where = ("--bootstrap", cluster().bootstrap)
    produced = cli("produce", "words", "--key-separator", ":", "-H", "from=test", "--json", *where, stdin="a:1\nb:2\n")
    assert json.loads(produced.stdout)["acked"] == 2, produced.stderr
    assert cli("produce", "words", "plain", *where).returncode == 0
    assert cli("consume", "words", "-B", "-e", *where).stdout == "1\n2\nplain\n"
    lines = cli("consume", "words", "-B", "-e", "--json", *where).stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert [(record["offset"], record["key"], record["value"]) for record in records] == [
        (0, "a", "1"),
        (1, "b", "2"),
        (2, None, "plain"),
    ]
    assert records[0]["headers"] == [{"name": "from", "value": "test"}]
    assert cli("consume", "words", "-p", "0", "-o", "1", "-n", "1", *where).stdout == "2\n"
    described = json.loads(cli("topic", "describe", "words", "--json", *where).stdout)
    assert described["partitions"] == [{"partition": 0, "start_offset": 0, "end_offset": 3, "records": 3}]


def test_a_group_remembers_how_far_it_read(cli, cluster) -> None:
    where = ("--bootstrap", cluster().bootstrap)
    cli("produce", "words", "one", "two", *where)
    assert cli("consume", "words", "-g", "readers", "-B", "-n", "2", *where).stdout == "one\ntwo\n"
    cli("produce", "words", "three", *where)
    assert cli("consume", "words", "-g", "readers", "-B", "-n", "1", *where).stdout == "three\n"


def test_the_demo_writes_orders(cli, cluster) -> None:
    made = cluster(http=True)
    where, registry = ("--bootstrap", made.bootstrap), ("--registry", made.catalog.replace("/iceberg", "/registry"))
    done = cli("demo", "--count", "50", "--rate", "1000", "--seed", "1", "--json", *where, *registry)
    assert json.loads(done.stdout) == {"topic": "orders", "acked": 50}, done.stderr
    read = cli("consume", "orders", "-B", "-e", *where, *registry).stdout
    values = [json.loads(line) for line in read.splitlines()]
    assert len(values) == 50
    assert all(value["amount"] > 0 and value["item"] and value["customer"] for value in values)
    sql = "SELECT sum(quantity) AS n, count(DISTINCT customer) AS c FROM orders"
    found = json.loads(cli("table", "query", sql, "--json", "--catalog", made.catalog).stdout)
    assert found == {"n": sum(each["quantity"] for each in values), "c": len({each["customer"] for each in values})}
    described = json.loads(cli("table", "describe", "orders", "--json", "--catalog", made.catalog).stdout)
    assert described["kinds"] == {"raw": 0, "tombstone": 0, "typed": 50, "typed and raw": 0}
    assert [(each["format"], each["values"]) for each in described["schemas"]] == [("AVRO", "columns")]
    plain = cli("demo", "--topic", "plain", "--format", "json", "--count", "3", "--seed", "1", *where)
    assert plain.returncode == 0, plain.stderr
    assert [json.loads(line)["item"] for line in cli("consume", "plain", "-B", "-e", *where).stdout.splitlines()] == [
        each["item"] for each in values[:3]
    ]


def test_schemas_are_registered_checked_and_evolve_tables(cli, cluster, tmp_path) -> None:
    made = cluster(http=True)
    kafka, lake = ("--bootstrap", made.bootstrap), ("--catalog", made.catalog)
    registry = ("--registry", made.catalog.replace("/iceberg", "/registry"))

    def schema(name: str, *fields: dict[str, object]) -> str:
        path = tmp_path / name
        path.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
        return str(path)

    number = {"name": "id", "type": "int"}
    first = schema("first.avsc", number)
    second = schema(
        "second.avsc", number | {"type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}
    )
    wrong = schema("wrong.avsc", number | {"type": "string"})
    done = cli("topic", "create", "orders", "--schema", first, "--json", *kafka, *registry)
    assert json.loads(done.stdout)["schema_id"] == 1, done.stderr
    assert "orders-value" in cli("schema", "list", *registry).stdout
    described = json.loads(cli("table", "describe", "orders", "--json", *lake).stdout)
    assert described["columns"][0]["name"] == "id"
    assert cli("schema", "check", "orders-value", second, *registry).returncode == 0
    refused = cli("schema", "check", "orders-value", wrong, *registry)
    assert (refused.returncode, "TYPE_MISMATCH" in refused.stderr) == (1, True), refused.stderr
    assert cli("schema", "register", "orders-value", wrong, *registry).returncode == 1
    told = json.loads(cli("schema", "evolve", "orders", second, "--dry-run", "--json", *registry, *lake).stdout)
    assert told["columns"] == [
        {"column": "id", "type": "long", "change": "was int"},
        {"column": "note", "type": "string", "change": "new"},
    ]
    assert json.loads(cli("schema", "list", "--json", *registry).stdout)[0]["version"] == 1
    assert json.loads(cli("schema", "evolve", "orders", second, "--json", *registry, *lake).stdout)["id"] == 2
    nobody = cli("schema", "list", "--registry", "http://127.0.0.1:9/registry")
    assert (nobody.returncode, "no schema registry answers" in nobody.stderr) == (1, True)
