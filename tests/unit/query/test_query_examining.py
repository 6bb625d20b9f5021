"""What a query may ask: two walls, the parser's and DuckDB's own, and each of them holds alone."""

from pathlib import Path

import pytest

from lakestream.errors import LakestreamError, QueryLimit, QueryRefused
from lakestream.query.messages import AnswerFormat, Limits, NamedTable, RunQuery
from lakestream.query.worker import running
from lakestream.query.worker.examining import examine
from lakestream.query.worker.reading import Loop
from lakestream.query.worker.running import Stopping, run

LIMITS = Limits(threads=1, memory_bytes=64 << 20, rows=100, answer_bytes=1 << 20, watchdog_s=60)
ESCAPES = [
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_blob('{file}')",
    "SELECT * FROM read_json_auto('{file}')",
    "SELECT * FROM parquet_metadata('{file}')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM query('SELECT * FROM read_text(''{file}'')')",
    "SELECT (SELECT content FROM read_text('{file}'))",
    "WITH x AS (SELECT * FROM read_text('{file}')) SELECT * FROM x",
    "SELECT * FROM range(1) WHERE EXISTS (FROM read_text('{file}'))",
    "SELECT 1 ORDER BY (SELECT count(*) FROM read_text('{file}'))",
    "SELECT [x FOR x IN (SELECT list(content) FROM read_text('{file}'))]",
    "FROM (VALUES (1)) t, LATERAL (SELECT * FROM read_text('{file}'))",
    "ATTACH '{file}' AS stolen",
    "COPY (SELECT 1) TO '{file}.out'",
    "EXPORT DATABASE '{file}.d'",
    "IMPORT DATABASE '{file}.d'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{file}'",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA enable_profiling",
    "CALL pragma_version()",
    "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "CREATE TABLE t AS SELECT 1",
    "CREATE MACRO f() AS TABLE SELECT * FROM read_text('{file}')",
    "SELECT 1; ATTACH '{file}'",
    "EXPLAIN ANALYZE SELECT 1",
    "PREPARE p AS SELECT 1",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(1)",
    "SELECT * FROM seq_scan('x')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM which_secret('s3://x', 's3')",
    "SELECT current_setting('secret_directory')",
    "SELECT write_log('x')",
    "SELECT sleep_ms(1000000)",
    "SELECT json_serialize_plan('SELECT 1')",
    "SELECT __internal_decompress_string(1::UHUGEINT)",
    "SELECT finalize('x'::BLOB)",
    "SHOW TABLES",
    "SHOW ALL TABLES",
]
HARMLESS_INSIDE = ("SHOW", "SELECT 1;", "EXPLAIN", "CREATE MACRO", "CREATE TABLE", "PREPARE", "PRAGMA", "CALL")
"""What the second wall lets pass, for there is nothing behind it."""


@pytest.mark.parametrize("escape", ESCAPES)
def test_the_parser_refuses_what_reads_more_than_tables(escape: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("stolen")
    with pytest.raises(QueryRefused):
        examine(escape.format(file=file))


@pytest.fixture(scope="module")
def loop() -> Loop:
    return Loop()


@pytest.mark.parametrize("escape", [each for each in ESCAPES if "{file}" in each or "SET" in each])
def test_duckdb_refuses_it_too(escape: str, tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("stolen")
    monkeypatch.setattr(running, "examine", lambda _text: None)
    try:
        done = run(RunQuery(escape.format(file=file), (), (), AnswerFormat.JSON, LIMITS), loop, Stopping())
    except LakestreamError:
        pass
    else:
        assert b"stolen" not in done.body
        assert escape.startswith(HARMLESS_INSIDE)
    assert sorted(tmp_path.iterdir()) == [file]


def test_tables_are_found_wherever_they_stand() -> None:
    found = examine(
        'WITH x AS (FROM a) SELECT (SELECT max(n) FROM s.b), [y FOR y IN (SELECT list(n) FROM c."D.e")] FROM x '
        "JOIN lakestream.t.f ON EXISTS (SELECT 1 FROM g) UNION SELECT random(), 1 FROM (SELECT * FROM h) "
        "ORDER BY (SELECT 1 FROM i)"
    )
    names = {("", "", name) for name in "axghi"} | {("", "s", "b"), ("", "c", "D.e"), ("lakestream", "t", "f")}
    assert set(found.tables) == {NamedTable(*name) for name in names}
    assert (found.local_names, found.volatile) == (("x",), ("random",))
    assert examine("DESCRIBE a").tables == examine("SUMMARIZE a").tables == (NamedTable("", "", "a"),)


@pytest.mark.parametrize(
    "text", ["", ";", "SELECT", "SELECT\0 1", "SELECT " + "(" * 40_000, "SELECT " + "1+" * 60_000 + "1"]
)
def test_what_is_no_query_is_refused_and_does_no_harm(text: str) -> None:
    try:
        examine(text)
    except QueryRefused as refused:
        assert str(refused)  # noqa: PT017 - a very long sum may pass
    assert examine("SELECT 1").tables == ()


def test_a_reserved_word_is_explained() -> None:
    with pytest.raises(QueryRefused, match=r'lakestream\.default\.orders or "default"\.orders'):
        examine("SELECT * FROM default.orders")


def test_limits_of_one_query(loop: Loop) -> None:
    def ask(text: str) -> int:
        return run(RunQuery(text, (), (), AnswerFormat.JSON, LIMITS), loop, Stopping()).row_count

    with pytest.raises(QueryLimit, match="64 MiB of memory"):
        ask("SELECT list(range || repeat('x', 100000)) FROM range(100000)")
    with pytest.raises(QueryLimit, match="larger than 1048576 bytes"):
        ask("SELECT repeat('x', 100000) FROM range(50)")
    assert ask("SELECT * FROM range(1000000000)") == 100
    with pytest.raises(QueryRefused, match="Conversion"):
        ask("SELECT 'x'::INT")
    with pytest.raises(QueryRefused, match="parameter"):
        ask("SELECT ?")
