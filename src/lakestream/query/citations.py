"""Where an answer came from, signed: what was asked, of which tables up to which offsets, and what the rows were.

A citation is whole in itself: with it the same question is put to the same rows again. Of a stream the offsets say
which rows those were, whatever merges and rewrites have done to its files since; the snapshot is for people, and for
tables that are no stream's. The digest is of the rows in any order. The signature is a MAC with a key of the cluster.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from hashlib import sha256
from typing import Final

import msgspec

from lakestream.errors import CitationRefused
from lakestream.query.messages import Value

VERSION: Final = 1
TOKEN_BYTES: Final = 8 * 1024
"""The longest that fits into a header."""
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class CitedTable(msgspec.Struct, frozen=True, kw_only=True):
    """`offsets`: by partition, the first that the query did not see. None: it saw all rows of the snapshot. `since`: by
    partition, the first that it did see. None: all from the beginning."""

    name: str
    table_id: str
    snapshot_id: str | None
    offsets: tuple[int, ...] | None = None
    since: tuple[int, ...] | None = None


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """`repeatable`: nothing in the query answers differently each time. `time`: when it was asked."""

    version: int = VERSION
    cluster: str
    query: str
    parameters: tuple[Value, ...] | dict[str, Value] = ()
    tables: tuple[CitedTable, ...]
    time: str
    max_rows: int
    row_count: int
    truncated: bool
    repeatable: bool
    digest: str
    signature: str = ""


def signed(citation: Citation, key: bytes) -> Citation:
    return msgspec.structs.replace(citation, signature=_signature(citation, key))


def check(citation: Citation, cluster: str, key: bytes) -> None:
    """Raises `CitationRefused`."""
    if citation.version != VERSION:
        raise CitationRefused(f"this is a citation of version {citation.version}, and {VERSION} is known here")
    if citation.cluster != cluster:
        raise CitationRefused(f"this is a citation of cluster {citation.cluster[:64]!r}, and this is {cluster}")
    if not hmac.compare_digest(citation.signature.encode(), _signature(citation, key).encode()):
        raise CitationRefused(
            "the signature does not fit: the citation was changed since it was given, or it was never given here"
        )


def as_token(citation: Citation) -> str:
    return urlsafe_b64encode(_ENCODER.encode(citation)).rstrip(b"=").decode()


def from_token(token: str) -> Citation:
    """Raises `CitationRefused`."""
    try:
        data = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        return msgspec.json.decode(data, type=Citation)
    except (NotBase64, UnicodeError, msgspec.DecodeError, RecursionError) as error:
        raise CitationRefused(f"this is no citation: {error}") from error


def _signature(citation: Citation, key: bytes) -> str:
    body = _ENCODER.encode(msgspec.structs.replace(citation, signature=""))
    return urlsafe_b64encode(hmac.digest(key, body, sha256)).rstrip(b"=").decode()
