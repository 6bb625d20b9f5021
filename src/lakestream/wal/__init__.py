"""The WAL object format: the records of many partitions in one object, with a self-describing footer.

`build` lays an object out from sections and receipts, `read_footer` reads one back and
verifies it, `verify_span` checks a section's bytes. Names carry the WAL generation,
the broker session and the flush.
"""

from lakestream.wal.footer import NOT_TOLD, Footer, Placed, Receipt, RefusedRange, SectionReceipt, Span
from lakestream.wal.format import BuiltObject, Section, build, verify_span
from lakestream.wal.naming import WAL_PREFIX, ObjectName, is_foreign, object_key, parse_key, session_name
from lakestream.wal.read import read_footer

__all__ = [
    "NOT_TOLD",
    "WAL_PREFIX",
    "BuiltObject",
    "Footer",
    "ObjectName",
    "Placed",
    "Receipt",
    "RefusedRange",
    "Section",
    "SectionReceipt",
    "Span",
    "build",
    "is_foreign",
    "object_key",
    "parse_key",
    "read_footer",
    "session_name",
    "verify_span",
]
