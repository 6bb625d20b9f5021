"""Binding a table to a topic and letting it go again, as chains of steps that any process may resume."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from uuid import UUID

from lakestream.errors import Conflict, InvalidSetting, TableExists, UnknownTable
from lakestream.metadata.names.pointers import Pointer, PointerRow, Pointers
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.list import Topics
from lakestream.metadata.topics.options import topic_options
from lakestream.metadata.topics.tables import detached_name, table_name

ALIAS: Final = "lakestream.table.name"


async def check_alias(pointers: Pointers, topics: Topics, configs: Mapping[str, str]) -> TableName | None:
    """Before a topic is made: the name that its owner chose, under which a table may be there already that the topic
    goes on in. None: there is no such name, or it is a deleted topic's, which will give it up. Raises `InvalidSetting`
    if it is another topic's, or is to be. Two topics that are made at once may both pass: the table of the second is
    then not made."""
    alias = topic_options(configs).table_name
    if not alias:
        return None
    wanted = table_name("", alias)
    living = {topic.topic_id: topic for topic in await topics.list()}
    for topic in living.values():
        if table_name(topic.name, topic.options.table_name) == wanted:
            raise InvalidSetting(f"{ALIAS}={alias} cannot be: it is the table of topic {topic.name}")
    dead = await owner(pointers, wanted)
    return wanted if dead is None or dead in living else None


async def bind(
    pointers: Pointers, topic_id: UUID, wanted: TableName, make_pointer: Callable[[], Awaitable[PointerRow]]
) -> None:
    """Pointer first, name last. `make_pointer` stores the first pointer, or returns the one that is there."""
    row = await pointers.get(topic_id)
    if row is None:
        row = await make_pointer()
    if not row.pointer.bound:
        raise Conflict(f"the table of topic {topic_id} was detached when the topic was deleted")
    try:
        await pointers.bind(topic_id, wanted, make_namespace=True)
    except TableExists as error:
        raise Conflict(f"table {wanted} is not topic {topic_id}'s: rename or drop it first") from error


async def location(pointers: Pointers, topic_id: UUID) -> str | None:
    """See `TableViews.pointer`."""
    row = await pointers.get(topic_id)
    return row.pointer.metadata_location if row is not None and row.pointer.bound else None


async def owner(pointers: Pointers, name: TableName) -> UUID | None:
    """See `TableCatalog.owner`. A table that is neither bound nor being detached is an engine's own, even if a stream
    once wrote it. A name without a table is what is left if a topic was deleted while its table was being named."""
    try:
        table_id = await pointers.resolve(name)
    except UnknownTable:
        return None
    row = await pointers.get(table_id)
    ours = row is None or row.pointer.bound or await pointers.is_leaving(table_id)
    return table_id if ours else None


async def detach(pointers: Pointers, topic_id: UUID) -> str | None:
    """Pointer first: from then on a commit that is still under way finds another version, and loses. Between the two
    steps nothing but the mark tells the table from one that an engine owns and named so."""
    while True:
        row = await pointers.get(topic_id)
        if row is None:
            if await pointers.name_of(topic_id) is not None:
                await pointers.drop(topic_id)
            return None
        if row.pointer.bound:
            await pointers.mark_leaving(topic_id)
            try:
                await pointers.swing(topic_id, row.version, Pointer(row.pointer.metadata_location, bound=False))
            except Conflict:
                continue
        name = await pointers.name_of(topic_id)
        if name is None:
            # Its creation was never finished, so nothing was ever committed to it.
            await pointers.drop(topic_id)
            return None
        if name.name.endswith(detached_name("", topic_id)):
            return str(name)
        name = TableName(name.namespace, detached_name(name.name, topic_id))
        try:
            await pointers.rename(topic_id, name)
        except UnknownTable:
            # Somebody else found its creation unfinished, and dropped it meanwhile.
            continue
        return str(name)
