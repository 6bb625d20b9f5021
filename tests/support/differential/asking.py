"""Sequences of requests that hypothesis makes about a few names: what one means depends on what came before."""

from typing import Any

from hypothesis import strategies as st

from support.differential import others, topics
from support.differential.drawing import Ask


def asks(prefix: str, broker_id: int) -> st.SearchStrategy[list[tuple[Ask, Ask]]]:
    """Sequences of pairs: what we are asked, whose broker has another id than Kafka's, and what Kafka is asked."""
    drawn = st.one_of(
        topics.create(prefix),
        topics.create(prefix),
        topics.grow(prefix),
        *(
            strategy(prefix)
            for strategy in (
                topics.delete,
                topics.metadata,
                topics.pages,
                topics.configs,
                topics.alter,
                topics.increment,
                topics.offsets,
                topics.trim,
            )
        ),
        *(
            strategy(prefix)
            for strategy in (
                others.elect,
                others.reassign,
                others.reassignments,
                others.quotas,
                others.alter_quotas,
                others.commit,
            )
        ),
        *(
            strategy(prefix)
            for strategy in (
                others.committed,
                others.forget,
                others.groups,
                others.drop_groups,
                others.producers,
                others.log_dirs,
                others.moves,
            )
        ),
        others.cluster(),
    )
    return st.lists(drawn.map(lambda ask: (_for(ask, broker_id), ask)), min_size=4, max_size=12)


def _for(ask: Ask, broker_id: int) -> Ask:
    return Ask(ask.key, ask.version, _numbered(ask.fields, broker_id), ask.again)


def _numbered(value: Any, broker_id: int) -> Any:
    """Kafka's only broker is 1."""
    if isinstance(value, dict):
        renamed = {name: _numbered(each, broker_id) for name, each in value.items()}
        for name in ("broker_ids", "replicas"):
            if renamed.get(name):
                renamed[name] = [broker_id if each == 1 else each for each in renamed[name]]
        if renamed.get("broker_id") == 1:
            renamed["broker_id"] = broker_id
        if renamed.get("resource_type") in (4, 8) and renamed.get("resource_name") == "1":
            renamed["resource_name"] = str(broker_id)
        return renamed
    if isinstance(value, list | tuple):
        return [_numbered(each, broker_id) for each in value]
    return value
