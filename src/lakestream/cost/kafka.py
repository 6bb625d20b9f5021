"""The bill of Apache Kafka over the same zones: three replicas of every partition, on gp3 volumes or tiered."""

from typing import Final

from lakestream.cost.model import BUSY, FETCH_CPU_S_PER_GB, HOURS, Bill, Workload, machines
from lakestream.cost.tables import Measured, Prices

REPLICAS: Final = 3
DISK_FULL: Final = 0.7
"""A volume is grown before it is fuller than this."""
LOCAL_S: Final = 12 * 3600
"""How long a tiered topic keeps its segments on disks, too: a day's outage of consumers begins to hurt beyond it."""
SEGMENT_GB: Final = 1.0
CONTROLLERS: Final = 3


def kafka_bill(workload: Workload, prices: Prices, measured: Measured, *, tiered: bool) -> Bill:
    gb_s, copies = workload.gb_per_s, REPLICAS - 1
    local_s = min(workload.retention_s, LOCAL_S) if tiered else workload.retention_s
    disk_gb = gb_s * local_s * REPLICAS / DISK_FULL
    tier_gb = workload.retained_gb if tiered else 0.0
    # A follower appends as a leader does, and is fetched for like a consumer.
    appends, fetches = gb_s * REPLICAS, gb_s * (copies + workload.fanout)
    cpu = appends * measured.kafka_produce_cpu_s_per_gb + fetches * FETCH_CPU_S_PER_GB
    count = machines(
        prices,
        workload.zones,
        cpu=cpu,
        inward_gb_s=appends,
        outward_gb_s=fetches + (gb_s if tiered else 0.0),
        ebs_gb_s=appends,
    )
    volumes = max(count, disk_gb / prices.ebs.volume_gb)
    throughput_mb_s = max(0.0, appends * 1000 / BUSY - volumes * prices.ebs.free_throughput_mb_s)
    followers_elsewhere = copies if workload.zones >= REPLICAS else copies * workload.elsewhere
    consumers_elsewhere = 0.0 if workload.follower_fetch else workload.elsewhere * workload.fanout
    crossing = workload.elsewhere + followers_elsewhere + consumers_elsewhere
    segments = workload.gb_month / SEGMENT_GB * 3 if tiered else 0.0
    return Bill(
        "Apache Kafka, tiered storage" if tiered else "Apache Kafka",
        {
            "put": segments / 1000 * prices.s3.put_per_1000,
            "get": 0.0,
            "storage": disk_gb * prices.ebs.storage_gb_month
            + throughput_mb_s * prices.ebs.throughput_mb_s_month
            + prices.stored_month(tier_gb),
            "network": crossing * workload.gb_month * prices.network.cross_zone_gb,
            "compute": (count + CONTROLLERS) * prices.instance.hour * HOURS,
            "metadata": 0.0,
        },
        (
            f"{count} brokers and {CONTROLLERS} controllers on {prices.instance.name}, {cpu:.0f} cores busy",
            f"{disk_gb / 1e6:.2f} PB of gp3, {DISK_FULL:.0%} full, {REPLICAS} replicas of {local_s / 3600:,.0f} h",
            *([f"{tier_gb / 1e6:.2f} PB in S3"] if tiered else []),
            f"{crossing:.2f} bytes cross zones for each byte produced: producers {workload.elsewhere:.2f},"
            f" followers {followers_elsewhere:.2f}, consumers {consumers_elsewhere:.2f}",
        ),
    )
