"""The admin client of every command that has one, and what it says when something fails."""

from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lakestream.cli.console import fail
from lakestream.cli.options import CONNECT_TIMEOUT_S


def connect(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def open_admin(bootstrap: str) -> AdminClient:
    """Ends the command if no broker answers."""
    admin = connect(bootstrap)
    topics(admin, bootstrap)
    return admin


def topics(client: Any, bootstrap: str) -> dict[str, Any]:
    """Every topic by its name, from any client: to ask for one by name would create it. Ends the command if no broker
    answers."""
    try:
        found: dict[str, Any] = client.list_topics(timeout=CONNECT_TIMEOUT_S).topics
    except KafkaException as error:
        fail(f"no broker answers at {bootstrap}: {reason(error)}")
    return found


def known_topic(client: Any, bootstrap: str, name: str) -> Any:
    topic = topics(client, bootstrap).get(name)
    if topic is None:
        fail(f"there is no topic {name!r}; `lakestream topic list` shows those that are")
    return topic


def reason(error: BaseException) -> str:
    if isinstance(error, KafkaException) and error.args:
        return str(error.args[0].str())
    return str(error) or "no answer in time"
