"""What a query may ask: one SELECT over tables, and functions that compute. Said by DuckDB's own parser.

The process is confined by DuckDB's switches as well (`running`): each of the two has to fail before a query gets at
anything but its tables. Table functions are those that make rows out of their arguments; some of the others take
addresses in memory. Functions are all but a few that look at the process, wait, or run text as SQL.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import duckdb
import msgspec

from lakestream.errors import QueryRefused
from lakestream.query.messages import Examined, NamedTable

_TABLE_FUNCTIONS: Final = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"})
_REFUSED: Final = frozenset(
    {
        "current_setting",
        "getvariable",
        "nextval",
        "currval",
        "write_log",
        "sleep_ms",
        "pg_sleep",
        "json_serialize_plan",
        "json_serialize_sql",
        "json_deserialize_sql",
        "json_execute_serialized_sql",
        "finalize",
        "combine",
        "variant_bytes_to_variant",
        "stats",
        "getenv",
    }
)
_INTERNAL: Final = "__internal"
_VOLATILE: Final = frozenset(
    {
        "random",
        "setseed",
        "uuid",
        "uuidv4",
        "uuidv7",
        "gen_random_uuid",
        "now",
        "today",
        "current_date",
        "current_localtime",
        "current_localtimestamp",
        "get_current_time",
        "get_current_timestamp",
        "current_timestamp",
        "transaction_timestamp",
        "txid_current",
        "current_transaction_id",
        "current_connection_id",
        "current_query_id",
        "age",
        "ago",
    }
)
_DESCRIBES: Final = frozenset({"DESCRIBE", "SUMMARY"})


def examine(text: str) -> Examined:
    """Raises `QueryRefused`."""
    if "\0" in text:
        raise QueryRefused("a query is text without NUL characters")
    tables: set[NamedTable] = set()
    local_names: set[str] = set()
    volatile: set[str] = set()
    parameters: dict[str, None] = {}
    table_functions: set[int] = set()
    for node in _nodes(_parsed(text)):
        kind = node.get("type")
        if kind == "TABLE_FUNCTION":
            function = node.get("function") or {}
            table_functions.add(id(function))
            _check_table_function(function)
        elif kind == "BASE_TABLE":
            tables.add(_table(node))
        elif kind == "SHOW_REF":
            _check_describe(node)
            if node.get("table_name"):
                tables.add(_table(node))
        elif "cte_map" in node:
            local_names.update(each["key"].lower() for each in node["cte_map"]["map"])
        if "function_name" in node and id(node) not in table_functions:
            name = str(node["function_name"]).lower()
            if name in _REFUSED or name.startswith(_INTERNAL):
                raise QueryRefused(f"the function {name} is not for queries: they read tables, and nothing else here")
            if name in _VOLATILE:
                volatile.add(name)
        if kind == "VALUE_PARAMETER":
            parameters[str(node.get("identifier", ""))] = None
        if kind == "RECURSIVE_CTE_NODE":
            local_names.add(str(node.get("cte_name", "")).lower())
    asked = sorted(parameters, key=_place)
    return Examined(tuple(sorted(tables)), tuple(sorted(local_names)), tuple(sorted(volatile)), tuple(asked))


def _place(parameter: str) -> tuple[int, str]:
    return (int(parameter), "") if parameter.isdigit() else (0, parameter)


def _parsed(text: str) -> Any:
    [found] = _parser().execute("SELECT json_serialize_sql(?)", [text]).fetchone() or ("",)
    try:
        tree = msgspec.json.decode(found)
    except (msgspec.DecodeError, RecursionError) as error:
        raise QueryRefused("the query is nested too deeply: take parts of it out with WITH") from error
    if tree["error"]:
        raise QueryRefused(_told(tree))
    statements = tree["statements"]
    if len(statements) != 1:
        raise QueryRefused(f"a query is one SELECT, and this text has {len(statements)} statements")
    return statements[0]


@lru_cache(maxsize=1)
def _parser() -> duckdb.DuckDBPyConnection:
    """Runs nothing but the parser."""
    return duckdb.connect(":memory:", config={"threads": "1", "enable_external_access": "false"})


def _told(tree: dict[str, Any]) -> str:
    if tree.get("error_type") == "not implemented":
        return "only SELECT can be asked here: tables are written by producing records"
    told = str(tree.get("error_message", "it cannot be parsed"))
    hint = ""
    if '"default"' in told:
        hint = '; the word default is reserved: write orders, lakestream.default.orders or "default".orders'
    return f"the query is not understood: {told} (at character {tree.get('position', '?')}){hint}"


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """A table function's node comes before the function in it."""
    waiting = [tree]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting.extend(found.values())
        elif isinstance(found, list):
            waiting.extend(found)


def _check_table_function(function: dict[str, Any]) -> None:
    name = str(function.get("function_name", "")).lower()
    if name not in _TABLE_FUNCTIONS:
        raise QueryRefused(
            f"the table function {name} is not for queries: they read the tables of streams by their names, and "
            f"{', '.join(sorted(_TABLE_FUNCTIONS))}"
        )


def _check_describe(node: dict[str, Any]) -> None:
    if node.get("show_type") not in _DESCRIBES:
        raise QueryRefused("only DESCRIBE and SUMMARIZE of a table or a query can be asked here, beside SELECT")


def _table(node: dict[str, Any]) -> NamedTable:
    return NamedTable(node.get("catalog_name", ""), node.get("schema_name", ""), node.get("table_name", ""))
