"""The bill of this engine: objects instead of replicas, a table instead of a log on disks."""

import math
from typing import Final

from lakestream.cost.model import FETCH_CPU_S_PER_GB, HOURS, SECONDS, Bill, Workload, machines
from lakestream.cost.tables import Measured, Prices

OBJECT_BYTES: Final = 8 * 1024 * 1024
"""A flush is written at this size at the latest."""
FLUSHES_PER_S: Final = {"diskless": 4, "disk": 200}
"""Of each broker that is not that busy: after 250 ms, after 5 ms."""
TABLE_FILE_GB: Final = 0.128
TABLE_COMMITS_PER_S: Final = 0.1
"""Of each topic."""
REQUESTS_PER_COMMIT: Final = 6
"""Data file, manifests, list, metadata, receipt."""
COMMITS_PER_DATABASE: Final = 1000
"""A second; each has all partitions of one object."""
WAL_S: Final = 600
"""How long an object stays until its rows are in the table and its grace is over."""


def lakestream_bill(workload: Workload, prices: Prices, measured: Measured) -> Bill:
    gb_s, zones = workload.gb_per_s, workload.zones
    cpu = gb_s * (measured.produce_cpu_s_per_gb + workload.fanout * FETCH_CPU_S_PER_GB + measured.table_cpu_s_per_gb)
    # Each zone reads what the others wrote, once; the table's writer reads everything once more.
    inward, outward = gb_s * (zones + 1), gb_s * (1 + workload.fanout + measured.stored[workload.codec])
    count = machines(prices, zones, cpu=cpu, inward_gb_s=inward, outward_gb_s=outward)
    objects_s = max(workload.in_bytes_per_s / OBJECT_BYTES, count * FLUSHES_PER_S[workload.profile])
    reads_s = objects_s * zones
    table_gb = workload.retained_gb * measured.stored[workload.codec]
    table_puts_s = gb_s / TABLE_FILE_GB + workload.topics * TABLE_COMMITS_PER_S * REQUESTS_PER_COMMIT
    put = table_puts_s * SECONDS / 1000 * prices.s3.put_per_1000
    get = table_puts_s * SECONDS / 1000 * prices.s3.get_per_1000
    storage = prices.stored_month(table_gb + gb_s * WAL_S)
    if workload.profile == "disk":
        # A copy in every zone, a majority of which is waited for; read in one's own zone.
        express = prices.express
        put += zones * (objects_s * SECONDS / 1000 * express.put_per_1000 + workload.gb_month * express.upload_gb)
        get += reads_s * SECONDS / 1000 * express.get_per_1000 + zones * workload.gb_month * express.retrieval_gb
        storage += zones * gb_s * WAL_S * express.storage_gb_month
    else:
        put += objects_s * SECONDS / 1000 * prices.s3.put_per_1000
        get += reads_s * SECONDS / 1000 * prices.s3.get_per_1000
    crossing = 0.0 if workload.zone_aware else workload.elsewhere * (1 + workload.fanout)
    databases = math.ceil(objects_s / COMMITS_PER_DATABASE)
    return Bill(
        f"Lakestream, {workload.profile}",
        {
            "put": put,
            "get": get,
            "storage": storage,
            "network": crossing * workload.gb_month * prices.network.cross_zone_gb,
            "compute": count * prices.instance.hour * HOURS,
            "metadata": databases * prices.database.hour * HOURS,
        },
        (
            f"{count} × {prices.instance.name} for brokers and pipeline, {cpu:.0f} cores busy",
            f"{objects_s:,.0f} WAL objects a second, each read once in each other zone and once for its table",
            f"{table_gb / 1e6:.2f} PB of tables, {measured.stored[workload.codec]:.2f} of what {workload.codec} sends",
            f"{databases} × {prices.database.name}",
        ),
    )
