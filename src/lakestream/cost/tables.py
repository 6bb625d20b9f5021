"""Prices and measured figures, from TOML files. Every figure of a bill can be traced to one of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from lakestream.errors import RequestError

_HERE: Final = Path(__file__).parent


class S3(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    put_per_1000: float
    get_per_1000: float
    tiers_tb: list[float]
    storage_gb_month: list[float]


class Express(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    put_per_1000: float
    get_per_1000: float
    upload_gb: float
    retrieval_gb: float
    storage_gb_month: float


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cross_zone_gb: float


class Ebs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    storage_gb_month: float
    throughput_mb_s_month: float
    free_throughput_mb_s: float
    volume_gb: float


class Instance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`network_gb_s`: what it sustains, each way."""

    name: str
    hour: float
    vcpus: int
    network_gb_s: float
    ebs_gb_s: float


class Database(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    hour: float


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars. GB is 10^9 bytes."""

    date: str
    source: str
    s3: S3
    express: Express
    network: Network
    ebs: Ebs
    instance: Instance
    database: Database

    def stored_month(self, gigabytes: float) -> float:
        """A month of S3 Standard, by its tiers."""
        dollars, begun = 0.0, 0.0
        for end_tb, price in zip([*self.s3.tiers_tb, float("inf")], self.s3.storage_gb_month, strict=True):
            dollars += max(0.0, min(gigabytes, end_tb * 1000) - begun) * price
            begun = end_tb * 1000
        return dollars


@dataclass(frozen=True, slots=True)
class Measured:
    """Of this version, CPU in seconds of one core for each GB. `stored`: bytes of a table for each byte that producers
    sent, by their compression."""

    produce_cpu_s_per_gb: float
    kafka_produce_cpu_s_per_gb: float
    table_cpu_s_per_gb: float
    stored: dict[str, float]


def load_prices(path: Path | None = None) -> Prices:
    """Raises `RequestError`."""
    path = path or _HERE / "prices.toml"
    try:
        prices = msgspec.toml.decode(path.read_bytes(), type=Prices)
    except (OSError, msgspec.DecodeError) as error:
        raise RequestError(f"{path} is no price table: {error}") from error
    if len(prices.s3.storage_gb_month) != len(prices.s3.tiers_tb) + 1:
        raise RequestError(f"{path} is no price table: s3.storage_gb_month has one price more than s3.tiers_tb")
    return prices


def load_measured() -> Measured:
    tree: dict[str, Any] = msgspec.toml.decode((_HERE / "measured.toml").read_bytes())
    found: dict[str, float] = tree["measured"]
    return Measured(
        found["produce_cpu_s_per_gb"],
        found["kafka_produce_cpu_s_per_gb"],
        found["table_cpu_s_per_gb"],
        {codec: found[f"stored_{codec}"] for codec in ("none", "lz4", "zstd")},
    )
