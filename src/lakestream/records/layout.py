"""Where things are in a v2 record batch, and what the kernels answer. Shared by the kernels and their callers."""

from enum import IntEnum
from typing import Final

BASE_OFFSET: Final = 0
BATCH_LENGTH: Final = 8
LEADER_EPOCH: Final = 12
MAGIC: Final = 16
CRC: Final = 17
ATTRIBUTES: Final = 21
LAST_OFFSET_DELTA: Final = 23
BASE_TIMESTAMP: Final = 27
MAX_TIMESTAMP: Final = 35
PRODUCER_ID: Final = 43
PRODUCER_EPOCH: Final = 51
BASE_SEQUENCE: Final = 53
RECORD_COUNT: Final = 57
HEADER_BYTES: Final = 61
"""The batch length counts from the leader epoch on, the CRC covers everything from the attributes on."""

CODEC_MASK: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

NO_TIMESTAMP: Final = -1
MAX_TIMESTAMP_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: what every table engine can show."""

MIN_RECORD_BYTES: Final = 7
"""Length, attributes, two deltas, key length, value length, header count, a byte each."""
MIN_HEADER_BYTES: Final = 2
FRAME_BYTES: Final = 5
"""Before a value that tells its schema: a zero byte and the schema's id, as Confluent's serializers write it."""


class Status(IntEnum):
    """What a kernel found. Errors are negative."""

    DONE = 0
    FULL = 1
    COMPRESSED = 2
    TRUNCATED = -1
    BAD_MAGIC = -2
    BAD_CRC = -3
    BAD_RECORD = -4
    BAD_COUNT = -5
    BAD_OFFSET = -6
    BAD_TIMESTAMP = -7
    BAD_HEADER_KEY = -8
    TRAILING_BYTES = -9
    AGAINST_RULES = -10


STATUS_TEXT: Final[dict[int, str]] = {
    Status.TRUNCATED: "the batch is cut short or its length is impossible",
    Status.BAD_MAGIC: "only record batches of magic 2 are served",
    Status.BAD_CRC: "the checksum does not match the bytes",
    Status.BAD_RECORD: "a length or a count inside a record does not fit",
    Status.BAD_COUNT: "the record count does not fit the batch",
    Status.BAD_OFFSET: "the records' offsets do not ascend as they must",
    Status.BAD_TIMESTAMP: "a timestamp is outside [-1, year 9999]",
    Status.BAD_HEADER_KEY: "a record header has no key",
    Status.TRAILING_BYTES: "bytes are left over after the last record",
    Status.AGAINST_RULES: "a record is none that its topic takes",
}
