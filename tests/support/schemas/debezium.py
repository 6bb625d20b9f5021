"""Change events as Debezium's Avro converter writes them."""

from typing import Any

from support.schemas.avro import framed, written

ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "version", "type": ["null", "long"], "default": None},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]},
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}


def event(schema_id: int, op: str, before: dict[str, Any] | None, after: dict[str, Any] | None, lsn: int = 0) -> bytes:
    value = {"before": before, "after": after, "source": {"lsn": lsn}, "op": op, "ts_ms": 1_700_000_000_000}
    return framed(schema_id, written(ENVELOPE, value))
