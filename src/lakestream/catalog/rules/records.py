"""Whether the rows that an engine's commit adds to a stream's table are records that producers sent.

Manifests cannot tell an `UPDATE` of the record itself from one of the owner's columns; rows can, by their `_crc`. A
topic with `lakestream.table.updates=record` serves what is in its table: then nothing is looked at.
"""

import logging
from collections.abc import Sequence
from uuid import UUID

from lakestream.errors import CorruptObject, ObjectMissing, TableRefused
from lakestream.metadata.topics.list import Topics
from lakestream.model import DataFile
from lakestream.table.rewriting.checking import RowChecker
from lakestream.table.shape import TableShape

_log = logging.getLogger(__name__)


class RowJudge:
    def __init__(self, checker: RowChecker, topics: Topics) -> None:
        self._checker = checker
        self._topics = topics

    async def __call__(self, topic_id: UUID, files: Sequence[DataFile], shape: TableShape) -> None:
        """Raises `TableRefused` with a sentence that names the record and the remedy."""
        if not files:
            return
        topic = (await self._topics.by_ids([topic_id])).get(topic_id)
        if topic is None or topic.options.table_updates == "record":
            return
        try:
            checked = await self._checker.check(files, shape)
        except ObjectMissing as error:
            raise TableRefused(f"the commit names a file that is not there: {error}") from error
        except CorruptObject as error:
            raise TableRefused(
                f"{error}. The commit changes a record of the stream (key, value or headers), and consumers are served"
                " what producers sent: update columns of your own, or DELETE the row and produce a new record. With"
                f" lakestream.table.updates=record topic {topic.name} serves its rows as engines leave them"
            ) from error
        if not checked.is_whole:
            _log.warning(
                "topic %s: an engine's commit of %d files is too large to be checked whole: %d of %d row groups were",
                topic.name,
                len(files),
                checked.checked_count,
                checked.group_count,
            )
