"""The whole path with nothing but our own commands: produce, move, query, consume."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.worlds.processes import ProcessWorld

pytestmark = pytest.mark.spark


def test_from_producer_to_sql_and_back(cluster: Callable[..., ProcessWorld], cli: Any, java: str) -> None:
    made = cluster(http=True)
    kafka, lake = ("--bootstrap", made.bootstrap), ("--catalog", made.catalog)
    missing = cli("table", "describe", "orders", *lake)
    assert missing.returncode == 1
    assert "there is no table 'orders' yet" in missing.stderr

    lines = "".join(f'c{number}:{{"item": "tea", "n": {number}}}\n' for number in range(100))
    assert cli("topic", "create", "orders", "-p", "2", *kafka).returncode == 0
    assert cli("produce", "orders", "-K", ":", *kafka, stdin=lines).returncode == 0
    before = cli("consume", "orders", "-B", "-e", "--json", *kafka).stdout
    registry = ("--registry", made.catalog.replace("/iceberg", "/registry"))
    sold = cli("demo", "-t", "sold", "-n", "60", "-r", "1000", *kafka, *registry)
    assert sold.returncode == 0, sold.stderr
    moved = made.run_pipeline_once("--json")
    summary = json.loads(moved.output.splitlines()[-1])
    assert (summary["records"], summary["failed"]) == (160, [])
    described = json.loads(cli("table", "describe", "sold", "--json", *lake).stdout)
    assert described["kinds"] == {"raw": 0, "tombstone": 0, "typed": 60, "typed and raw": 0}
    read = [json.loads(line) for line in cli("consume", "sold", "-B", "-e", *kafka, *registry).stdout.splitlines()]
    sql = "SELECT sum(quantity) AS n FROM sold"
    assert json.loads(cli("table", "query", sql, "--json", *lake).stdout) == {"n": sum(one["quantity"] for one in read)}

    described = json.loads(cli("table", "describe", "orders", "--json", *lake).stdout)
    assert described["rows"] == 100
    assert sum(described["frontier"]) == 100
    assert {"_offset", "_value", "_crc"} <= {column["name"] for column in described["columns"]}
    assert "default.orders" in cli("table", "describe", "orders", *lake).stdout

    sql = "SELECT decode(_key) AS k, decode(_value)->>'n' AS n FROM orders WHERE decode(_key) = 'c7'"
    assert json.loads(cli("table", "query", sql, "--json", *lake).stdout) == {"k": "c7", "n": "7"}
    everything = cli("table", "query", "SELECT * FROM orders LIMIT 1", "--json", *lake)
    assert json.loads(everything.stdout)["_timestamp"].startswith("20")
    limited = cli("table", "query", "SELECT _offset FROM orders", "--limit", "3", *lake)
    assert "3 rows" in limited.stdout
    assert "more than 3 rows" in limited.stderr
    wrong = cli("table", "query", "SELEC 1", *lake)
    assert wrong.returncode == 1
    assert "syntax error" in wrong.stderr
    assert "Traceback" not in wrong.stderr

    after = cli("consume", "orders", "-B", "-e", "--json", *kafka).stdout
    assert sorted(after.splitlines()) == sorted(before.splitlines())
    assert len(after.splitlines()) == 100
