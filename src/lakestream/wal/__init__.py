"""The WAL object format: the records of many partitions in one object, with a self-describing footer.

`build` lays an object out from sections and receipts, `read_footer` reads one back and
verifies it, `verify_span` checks a section's bytes. Names carry the WAL generation,
the broker session and the flush. `WalStores` are the places where objects lie: the bucket, and the disk stores.
"""

from lakestream.wal.disks import DiskStore
from lakestream.wal.footer import NOT_TOLD, Footer, Placed, Receipt, RefusedRange, SectionReceipt, Span
from lakestream.wal.format import BuiltObject, Section, build, check_object, verify_span
from lakestream.wal.naming import WAL_PREFIX, ObjectName, is_foreign, object_key, parse_key, session_name
from lakestream.wal.read import read_footer
from lakestream.wal.stores import MAIN_STORE, NamedDisk, WalStores
from lakestream.wal.writing import BucketWriter, MajorityWriter, WalWriter

__all__ = [
    "MAIN_STORE",
    "NOT_TOLD",
    "WAL_PREFIX",
    "BucketWriter",
    "BuiltObject",
    "DiskStore",
    "Footer",
    "MajorityWriter",
    "NamedDisk",
    "ObjectName",
    "Placed",
    "Receipt",
    "RefusedRange",
    "Section",
    "SectionReceipt",
    "Span",
    "WalStores",
    "WalWriter",
    "build",
    "check_object",
    "is_foreign",
    "object_key",
    "parse_key",
    "read_footer",
    "session_name",
    "verify_span",
]
