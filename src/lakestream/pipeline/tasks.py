"""What runs in a Spark task."""

from uuid import uuid4

from lakestream.frontier.moving.tiles.tile import pack, unpack_tile
from lakestream.frontier.moving.tiles.writing import attempt_tile


def write(payload: bytes) -> bytes:
    """A packed tile in, its packed outcome out. Every attempt names its files anew: Spark may repeat a task, and a
    repetition that overwrote a file already committed could change it under its readers. Spark's daemon ends its
    workers with `os._exit`, whatever became of their tasks."""
    return pack(attempt_tile(unpack_tile(payload), uuid4(), ends_at_once=True))
