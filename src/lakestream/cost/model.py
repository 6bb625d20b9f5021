"""The words of a bill: a workload, its parts, and how machines are counted."""

import math
from dataclasses import dataclass
from typing import Final, Literal

from lakestream.cost.tables import Prices

HOURS: Final = 730
"""Of a month."""
SECONDS: Final = HOURS * 3600
GB: Final = 1e9
BUSY: Final = 0.5
"""Of a machine's cores and network when nothing is wrong: another zone's load must fit in."""
PARTS: Final = ("put", "get", "storage", "network", "compute", "metadata")
FETCH_CPU_S_PER_GB: Final = 0.5
"""Assumed for both sides: no benchmark measures it yet."""

Profile = Literal["diskless", "disk"]
Codec = Literal["none", "lz4", "zstd"]


@dataclass(frozen=True, slots=True)
class Workload:
    """`in_bytes_per_s`: as producers send it, compressed by `codec`. `fanout`: how often each byte is consumed.
    `zone_aware`: clients talk to brokers of their own zone, which a leader's clients cannot choose."""

    in_bytes_per_s: float
    fanout: float
    retention_s: float
    zones: int = 3
    profile: Profile = "diskless"
    codec: Codec = "zstd"
    zone_aware: bool = True
    follower_fetch: bool = False
    topics: int = 100

    @property
    def gb_per_s(self) -> float:
        return self.in_bytes_per_s / GB

    @property
    def gb_month(self) -> float:
        return self.gb_per_s * SECONDS

    @property
    def retained_gb(self) -> float:
        return self.gb_per_s * self.retention_s

    @property
    def elsewhere(self) -> float:
        """The share of a random partner's traffic that crosses zones."""
        return (self.zones - 1) / self.zones


@dataclass(frozen=True, slots=True)
class Bill:
    """Dollars a month, by part. `notes`: what was counted."""

    name: str
    dollars: dict[str, float]
    notes: tuple[str, ...] = ()

    @property
    def month(self) -> float:
        return sum(self.dollars.values())

    @property
    def hour(self) -> float:
        return self.month / HOURS

    def saving_over(self, other: "Bill") -> float:
        """The share of the other bill that this one spares."""
        return 1 - self.month / other.month


def machines(
    prices: Prices, zones: int, *, cpu: float, inward_gb_s: float, outward_gb_s: float, ebs_gb_s: float = 0.0
) -> int:
    """How many it takes: for cores, network and disks, at `BUSY`, the same number in each zone."""
    instance = prices.instance
    wanted = max(
        cpu / (instance.vcpus * BUSY),
        inward_gb_s / (instance.network_gb_s * BUSY),
        outward_gb_s / (instance.network_gb_s * BUSY),
        ebs_gb_s / (instance.ebs_gb_s * BUSY),
    )
    return zones * max(1, math.ceil(wanted / zones))
