"""Kafka record batches, format v2, as pure functions over bytes.

`validate` is the deep check of what producers send, `take` the same with the batch in the form in which its topic keeps
it, `compressed` compresses batches, `walk`, `stamp`, `control_batch` and `marker_batch` work on headers, `decode` turns
batches of any compression into columns and `Encoder` turns columns back into batches, to the byte. The loops over
records are machine code (`kernels`), compiled once per machine: `warm_up` does that ahead of need.
"""

from lakestream.records.batches import BatchInfo, batch_at, control_batch, crc32c, marker_batch, stamp, walk
from lakestream.records.checking.rewriting import compressed, take
from lakestream.records.checking.rules import UNBOUNDED_MS, BatchRules, SchemaIds
from lakestream.records.checking.validation import validate
from lakestream.records.columns import Arena, Binary, Columns
from lakestream.records.compression import MAX_DECOMPRESSED_BYTES, BatchCompression, OutOfRoom
from lakestream.records.decoding import Run, decode
from lakestream.records.encoding import Encoder, encode
from lakestream.records.native import warm_up

__all__ = [
    "MAX_DECOMPRESSED_BYTES",
    "UNBOUNDED_MS",
    "Arena",
    "BatchCompression",
    "BatchInfo",
    "BatchRules",
    "Binary",
    "Columns",
    "Encoder",
    "OutOfRoom",
    "Run",
    "SchemaIds",
    "batch_at",
    "compressed",
    "control_batch",
    "crc32c",
    "decode",
    "encode",
    "marker_batch",
    "stamp",
    "take",
    "validate",
    "walk",
    "warm_up",
]
