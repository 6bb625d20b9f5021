"""Records as clients send them, in version 3 one object each."""

from datetime import datetime

import msgspec

NULL = msgspec.Raw(b"null")


class SentData(msgspec.Struct, frozen=True, gc=False):
    """`data` stays as it was sent. Without a type it is of the schema that the other fields name."""

    data: msgspec.Raw = msgspec.field(default_factory=lambda: NULL)
    type: str | None = None
    subject: str | None = None
    subject_name_strategy: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    schema: str | None = None


class SentHeader(msgspec.Struct, frozen=True, gc=False):
    """`value` is base64."""

    name: str
    value: str | None = None


class SentRecord(msgspec.Struct, frozen=True, gc=False):
    partition_id: int | None = None
    headers: list[SentHeader] | None = None
    key: SentData | None = None
    value: SentData | None = None
    timestamp: datetime | None = None
