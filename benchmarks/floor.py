"""What the libraries alone cost on the way from the WAL to a Parquet file: one GET of the bytes with obstore, one write
of columns that are ready with Arrow, one PUT of the file. Nothing is checked, decoded, planned or
committed. Two threads at a time, as Spark's two workers, and the memory settings of those.

    python -m benchmarks.floor URL BYTES_PER_VALUE        prints megabytes of values per CPU second
"""

import io
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import ObjectStore, from_url

from benchmarks.orders import payload
from benchmarks.result import QUICK
from lakestream.pipeline.session import WORKER_ENVIRONMENT
from lakestream.records import Arena, Run, decode
from lakestream.table.parquet.arrow import to_arrow
from lakestream.table.parquet.compression import DEFAULT_COMPRESSION
from lakestream.table.shape import RAW

ROUNDS = 3 if QUICK else 9
FILE_BYTES = 24 * 1024 * 1024
"""Of WAL, as one of the files of the pipeline's benchmark holds."""
ROW_GROUP_BYTES = 12 * 1024 * 1024
_DELTA = "DELTA_BINARY_PACKED"
OPTIONS = {
    "compression": DEFAULT_COMPRESSION.codec,
    "compression_level": DEFAULT_COMPRESSION.level,
    "use_dictionary": ["_stream_partition"],
    "column_encoding": {"_offset": _DELTA, "_timestamp": _DELTA, "_timestamp_type": _DELTA, "_kind": _DELTA},
    "write_statistics": ["_stream_partition", "_offset", "_timestamp", "_timestamp_type", "_key"],
    "store_schema": False,
    "write_page_checksum": True,
}
"""Arrow's fastest for these columns."""


def floor(url: str, value_bytes: int) -> float:
    """Megabytes of values per CPU second, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.floor", url, str(value_bytes)]
    environment = os.environ | WORKER_ENVIRONMENT
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def _row_groups(data: bytes) -> Iterator[pa.Table]:
    """Ready columns, in memory of their own."""
    for position in range(0, FILE_BYTES, ROW_GROUP_BYTES):
        for columns in decode([Run(0, position, data)], Arena(2 * ROW_GROUP_BYTES)):
            yield to_arrow(columns, RAW)


def _one(store: ObjectStore, key: str, size_bytes: int, groups: list[pa.Table], target: str) -> None:
    obstore.get_range(store, key, start=0, length=size_bytes)
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, groups[0].schema, **OPTIONS) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=group.num_rows)
    obstore.put(store, target, sink.getbuffer(), use_multipart=False)


def _measure(url: str, value_bytes: int) -> float:
    store = from_url(url, client_options={"allow_http": True} if url.startswith("s3://") else None)
    made = payload(random.Random(value_bytes), ROW_GROUP_BYTES // value_bytes, value_bytes)
    groups = list(_row_groups(made.data))
    data = made.data * len(groups)
    obstore.put(store, "floor/wal", data, use_multipart=False)
    megabytes = sum(group.num_rows for group in groups) * value_bytes / 1e6
    names = count()
    rates = []
    with ThreadPoolExecutor(2) as threads:
        for _ in range(ROUNDS):
            started = time.process_time()
            pair = [
                threads.submit(_one, store, "floor/wal", len(data), groups, f"floor/{next(names)}") for _ in range(2)
            ]
            for done in pair:
                done.result()
            rates.append(2 * megabytes / (time.process_time() - started))
    return statistics.median(rates)


if __name__ == "__main__":
    print(_measure(sys.argv[1], int(sys.argv[2])))
