"""`lakestream table lag`: how far each table is behind its topic's log."""

from typing import Annotated, Any
from urllib.parse import urlsplit, urlunsplit

import requests
import typer

from lakestream.cli.console import emit_json, fail, out, show_table
from lakestream.cli.options import DEFAULT_CATALOG, REQUEST_TIMEOUT_S, Catalog, Json


def lag(
    topic: Annotated[str | None, typer.Argument(help="Only this topic.")] = None,
    catalog: Catalog = DEFAULT_CATALOG,
    json: Json = False,
) -> None:
    """Show how far tables are behind their topics, when the pipeline last committed, what is quarantined and why."""
    found = [each for each in _read(catalog) if topic in (None, each["topic"])]
    if topic is not None and not found:
        fail(f"there is no topic {topic!r}")
    if json:
        for each in found:
            emit_json(each)
        return
    show_table(
        ["topic", "records behind", "oldest (s)", "in the table", "last commit (ms since 1970)", "state"],
        [
            (
                each["topic"],
                f"{each['lag_records']:,}",
                f"{each['lag_ms'] / 1000:.1f}",
                f"{sum(each['frontier']):,} of {sum(each['end']):,}",
                each["committed_ms"],
                _state(each),
            )
            for each in found
        ],
    )
    for each in found:
        if each["error"]:
            out.print(f"{each['topic']}, after {each['failures']} tries: {each['error']}", markup=False, soft_wrap=True)


def _state(lag: dict[str, Any]) -> str:
    if lag["error"]:
        return f"quarantined, next try in {lag['retry_in_ms'] / 1000:.0f} s"
    return f"ok; {lag['held_records']:,} wait for open transactions" if lag["held_records"] else "ok"


def _read(catalog: str) -> list[dict[str, Any]]:
    place = urlsplit(catalog)
    try:
        answer = requests.get(urlunsplit((place.scheme, place.netloc, "/lag", "", "")), timeout=REQUEST_TIMEOUT_S)
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()
    except requests.ConnectionError:
        fail(f"no catalog answers at {catalog}")
    except requests.RequestException as error:
        fail(f"the HTTP door at {catalog} refused: {error}")
    return found
