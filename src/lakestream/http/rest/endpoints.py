"""An endpoint: its route, and what the served OpenAPI document says of it. Both come from here, so they agree."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.routing import Route

from lakestream.http.rest.answers import JSON
from lakestream.http.rest.errors import Handler, answered

NUMBER: Final = {"type": "integer", "minimum": 0, "maximum": (1 << 31) - 1}
OFFSET: Final = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
TEXT: Final = {"type": "string", "minLength": 1}
FLAG: Final = {"type": "boolean"}
_NAME: Final = re.compile(r"\{(consumer_group_id|consumer_id|group_name|instance)\}")
"""Names that may have slashes in them: what is more specific has to be asked first."""
_NAME_TYPE: Final = "anyname"
NUMBERS: Final = frozenset({"partition_id", "broker_id"})


class _NameConvertor(PathConvertor):
    """Line breaks, too."""

    regex = r"[\s\S]*"


register_url_convertor(_NAME_TYPE, _NameConvertor())


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter of the query."""

    name: str
    schema: dict[str, Any]
    summary: str
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`body`, `answer`: types of what is sent and answered as JSON; None: nothing is. `bodies`, `answers`: the media
    types where they are not plain JSON."""

    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    body: Any = None
    answer: Any = None
    status: int = 200
    query: Sequence[Query] = ()
    bodies: Sequence[str] = (JSON,)
    answers: Sequence[str] = (JSON,)
    is_body_required: bool = True
    headers: Sequence[Query] = field(default=())

    def route(self) -> Route:
        path = _NAME.sub(rf"{{\1:{_NAME_TYPE}}}", self.path)
        return Route(path, answered(self.handler), methods=[self.method])
