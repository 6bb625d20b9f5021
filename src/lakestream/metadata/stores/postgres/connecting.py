"""Connections to PostgreSQL, and what its errors mean to a caller of the store."""

import asyncio
import re
import ssl
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from lakestream.errors import CorruptObject, LakestreamError, RequestError, Unavailable

SCHEMES: Final = ("postgres", "postgresql")
CONNECT_TIMEOUT_S: Final = 10.0
COMMAND_TIMEOUT_S: Final = 15.0
"""Above the server's own time-out: an answer that says "rolled back" is better than none."""

T = TypeVar("T")

_SESSION: Final = {
    "application_name": "lakestream",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "statement_timeout": "10s",
    "lock_timeout": "8s",
    "idle_in_transaction_session_timeout": "10s",
    # Every lookup is by primary key. Plans made from statistics of an empty table read all of it when it has grown.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,40}")
LOST: Final = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that was lost at an unlucky moment
    asyncpg.OperatorInterventionError,  # 57: shutdown, starting up, cancelled
    asyncpg.ReadOnlySQLTransactionError,  # a former primary
)
"""Nothing more is to be had from this connection."""
ROLLED_BACK: Final = (asyncpg.TransactionRollbackError, asyncpg.LockNotAvailableError)


@dataclass(frozen=True, slots=True)
class Server:
    """`place` names it without its password."""

    url: str
    schema: str
    place: str

    async def connect(self, *, durable: bool = True) -> asyncpg.Connection:
        """`durable`: a commit is on disk before its answer, whatever the role's default is."""
        return await asyncpg.connect(**self.options(durable=durable))

    def options(self, *, durable: bool = True) -> dict[str, Any]:
        settings = _SESSION | {"synchronous_commit": "on" if durable else "off"}
        return {
            "dsn": self.url,
            "timeout": CONNECT_TIMEOUT_S,
            "server_settings": settings,
            "target_session_attrs": "read-write",
        }


def server_of(url: str) -> Server:
    """postgres://user:password@host:port/database, several hosts for fail-over, `?schema=` and what libpq takes."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    schema = options.pop("schema", "lakestream")
    if not _SCHEMA.fullmatch(schema):
        raise RequestError("the schema of a metadata store is named by a-z, 0-9 and _, 41 characters at most")
    hosts = parts.netloc.rpartition("@")[2] or "the default host"
    place = f"postgres://{hosts}{parts.path} (schema {schema})"
    return Server(urlunsplit(parts._replace(query=urlencode(options))), schema, place)


async def asked(connection: asyncpg.Connection, question: Coroutine[Any, Any, T]) -> T:
    """The answer, or `TimeoutError`. Whoever gives up leaves the server alone: asyncpg would have it cancel, and a
    commit that waits for its standby is then visible without being there, to be lost with the next fail-over."""
    task = asyncio.ensure_future(question)
    try:
        done, _ = await asyncio.wait({task}, timeout=COMMAND_TIMEOUT_S)
        if not done:
            raise TimeoutError(f"no answer in {COMMAND_TIMEOUT_S:.0f} s")
        return task.result()
    finally:
        if not task.done():
            connection.terminate()
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


@contextmanager
def opening(place: str) -> Iterator[None]:
    """Says at the start what the operator has to mend."""
    try:
        yield
    except LakestreamError:
        raise
    except asyncpg.InvalidAuthorizationSpecificationError as error:
        raise RequestError(f"{place} refuses the user or the password: {_words(error)}") from error
    except asyncpg.InvalidCatalogNameError as error:
        raise RequestError(f"{place}: there is no such database; create it first: {_words(error)}") from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise RequestError(
            f"{place}: the user may not do what the store needs ({_words(error)}); grant CREATE on the database, or "
            f"create the schema and make the user its owner"
        ) from error
    except (asyncpg.ClientConfigurationError, ssl.SSLError, ValueError) as error:
        raise RequestError(f"{place} cannot be used: {_words(error)}") from error
    except (*LOST, TimeoutError, asyncpg.PostgresError) as error:
        raise Unavailable(f"{place} cannot be reached: {_words(error)}") from error


@contextmanager
def errors_translated(place: str) -> Iterator[None]:
    """Tells PostgreSQL's errors in the store's words. What is not known to be decided is unknown."""
    try:
        yield
    except ROLLED_BACK as error:
        raise Unavailable(f"{place} rolled back, nothing was written: {_words(error)}") from error
    except asyncpg.DiskFullError as error:
        raise Unavailable(f"the disk of {place} is full, nothing was written; free some space") from error
    except asyncpg.DataCorruptedError as error:
        raise CorruptObject(f"{place} is damaged: {_words(error)}; restore it from a backup") from error
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError, asyncpg.UndefinedFunctionError) as error:
        raise CorruptObject(f"{place} is gone or was changed by others: {_words(error)}") from error
    except (*LOST, TimeoutError, asyncio.IncompleteReadError, asyncpg.PostgresError) as error:
        raise Unavailable(f"{place} did not answer, the outcome is unknown: {_words(error)}") from error


def _words(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
