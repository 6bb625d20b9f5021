"""Everything an operator may set, as one typed structure: text and numbers, no component.

Read from an optional TOML file, then from the environment: the field `flush_interval_ms` of the section
`stream` is `LAKESTREAM_STREAM_FLUSH_INTERVAL_MS`. Each room documents its own section.
"""

import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from lakestream.errors import RequestError
from lakestream.frontier.settings import DiskSettings, FreshSettings, PipelineSettings
from lakestream.kafka.settings import KafkaSettings
from lakestream.query.settings import QuerySettings
from lakestream.schemas.settings import SchemaSettings
from lakestream.stream.settings import StreamSettings

PREFIX = "LAKESTREAM_"


class LogFormat(StrEnum):
    AUTO = "auto"
    """Text for a terminal, JSON for everything else."""
    TEXT = "text"
    JSON = "json"


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One broker process, which listens on `host` and `port`."""

    id: int | None = None
    """Its number, unique among the brokers. None: one from 1001 on that is free, so that all brokers may have one
    configuration."""
    host: str = "127.0.0.1"
    port: int = 9092
    advertised: str = ""
    """host:port that clients are told. Empty: where it listens."""
    zone: str | None = None
    """The availability zone it is in, which clients know as its rack: those of the zone are sent to it."""
    workers: int = 1
    """Processes that `lakestream broker` runs, one for each core: each is a broker with the next port, advertised port
    and, if it is fixed, id. Memory budgets and caches are those of each process."""


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: int = 8181
    advertised: str = ""
    """host:port at which engines reach this door. Empty: where it listens."""
    hosts: str = ""
    """Names or addresses by which clients reach the door beside `advertised` and this machine's own (localhost, its
    host name, the address of the connection), commas between them; * lets any pass, for a proxy in front that looks at
    them."""
    locations: str = ""
    """Folders beside the bucket's warehouse where engines may put tables and views, commas between them."""
    vend_credentials: bool = False
    """Whether engines that ask for them get the S3 keys of this process. Whoever reaches the door gets them then."""
    publish: bool = False
    """Whether agents get a tool at /mcp that writes records."""


class FlightSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the HTTP door's process answers clients of Arrow Flight SQL."""

    host: str = "127.0.0.1"
    port: int | None = None
    """None: nowhere."""


class MonitorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a broker or a pipeline tells how it is: /metrics, /health, /ready. The HTTP door does so itself."""

    host: str = "127.0.0.1"
    port: int | None = None
    """None: nowhere. 0: any port that is free; the log says which."""


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    master: str = "local[*]"
    """local[*], spark://host:port, yarn or k8s://…"""
    driver_memory: str = "1g"
    ui: bool = False
    """Spark's own web page."""
    options: dict[str, str] = {}
    """Options of Spark itself, which win over ours. In the file only."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data_dir: str = "./data"
    """Where the embedded defaults keep bucket and metadata."""
    bucket_url: str = ""
    """Where objects and tables live: file:///path, s3://bucket … Empty: a directory in data_dir."""
    metadata_url: str = ""
    """sqlite:///path, or postgres://user:password@host/database or oxia://host:port/namespace for brokers on several
    machines. Empty: a file in data_dir."""
    metadata_save_ms: int = 60_000
    """How often rows of the metadata store are saved into the bucket if they changed, for `lakestream recover`."""
    external_catalog: str = ""
    """The catalog that has the tables, by its name in PyIceberg's own settings. Empty: ours, in the metadata store."""
    log_format: LogFormat = LogFormat.AUTO
    """auto, text, or json: one object a line with time, level, logger, process, message and what failed."""
    broker: BrokerSettings = BrokerSettings()
    http: HttpSettings = HttpSettings()
    flight: FlightSettings = FlightSettings()
    monitor: MonitorSettings = MonitorSettings()
    spark: SparkSettings = SparkSettings()
    stream: StreamSettings = StreamSettings()
    disk: DiskSettings = DiskSettings()
    kafka: KafkaSettings = KafkaSettings()
    pipeline: PipelineSettings = PipelineSettings()
    fresh: FreshSettings = FreshSettings()
    schemas: SchemaSettings = SchemaSettings()
    query: QuerySettings = QuerySettings()

    @property
    def bucket(self) -> str:
        return self.bucket_url or f"file://{Path(self.data_dir).resolve() / 'bucket'}"

    @property
    def metadata(self) -> str:
        return self.metadata_url or f"sqlite://{Path(self.data_dir).resolve() / 'metadata.db'}"


def load(file: Path | None, environment: Mapping[str, str], overrides: Mapping[str, Any]) -> Settings:
    """File, then environment, then `overrides` (by dotted name, None: not given). Raises `RequestError`
    that names the wrong setting."""
    tree: dict[str, Any] = {}
    if file is not None:
        try:
            tree = tomllib.loads(file.read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise RequestError(f"the settings file {file} cannot be read: {error}") from error
    for name in names():
        value = environment.get(variable(name))
        if value is not None:
            _put(tree, name, value)
    for name, value in overrides.items():
        if value is not None:
            _put(tree, name, value)
    try:
        return msgspec.convert(tree, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise RequestError(f"a setting is wrong: {error}") from error


def listed(text: str) -> list[str]:
    """A setting that is several, with commas between them."""
    return [part for part in (each.strip() for each in text.split(",")) if part]


def names() -> list[str]:
    """Every setting by its dotted name: `data_dir`, `broker.port`, `kafka.groups.lease_ttl_ms` …"""
    return list(_names(Settings, ""))


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.replace(".", "_").upper()


def _names(struct: type[msgspec.Struct], prefix: str) -> Iterator[str]:
    for field in msgspec.structs.fields(struct):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _names(field.type, f"{prefix}{field.name}.")
        elif field.type != dict[str, str]:
            yield prefix + field.name


def _put(tree: dict[str, Any], name: str, value: Any) -> None:
    *sections, field = name.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    tree[field] = value
