"""Kafka record batches, format v2, as pure functions over bytes.

`validate` is the deep check of what producers send, `walk`, `stamp` and `control_batch` work on headers, `decode` turns
batches of any compression into columns and `Encoder` turns columns back into batches, to the byte. The loops over
records are machine code (`kernels`), compiled once per machine: `warm_up` does that ahead of need.
"""

from lakestream.records.batches import BatchInfo, control_batch, crc32c, stamp, walk
from lakestream.records.columns import Arena, Binary, Columns
from lakestream.records.decoding import Run, decode, lacks_key
from lakestream.records.encoding import Encoder, encode
from lakestream.records.native import warm_up
from lakestream.records.validation import validate

__all__ = [
    "Arena",
    "BatchInfo",
    "Binary",
    "Columns",
    "Encoder",
    "Run",
    "control_batch",
    "crc32c",
    "decode",
    "encode",
    "lacks_key",
    "stamp",
    "validate",
    "walk",
    "warm_up",
]
