"""What the registry asks of a format."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from lakestream.errors import RegistryProblem, RegistryRefused

MOST_MESSAGES: Final = 50


class Dependency(NamedTuple):
    """A schema that another one refers to by this name."""

    name: str
    text: str


class ParsedSchema(Protocol):
    """A schema that is valid together with its dependencies. Blocking, for threads."""

    @property
    def text(self) -> str:
        """The same for texts that differ in nothing but layout."""
        ...

    def normalized(self) -> str:
        """The same for texts that mean the same."""
        ...

    def incompatibilities(self, writer: "ParsedSchema") -> list[str]:
        """What keeps a reader that has this schema from reading what was written with the other, which is of the same
        format."""
        ...


class SchemaFormat(Protocol):
    def parse(self, text: str, dependencies: Sequence[Dependency]) -> ParsedSchema:
        """`dependencies`: all, also those of dependencies, each after its own. Raises `RegistryRefused`."""
        ...


def invalid(reason: object) -> RegistryRefused:
    return RegistryRefused(RegistryProblem.INVALID_SCHEMA, f"Invalid schema: {reason}")
