"""What obstore says went wrong, in our own errors and in sentences that tell what to do.

Only a few kinds of failure have a class of their own there, and those of a listing have none: for the others the
status is read from the words.
"""

import re
from http import HTTPStatus
from typing import Final

from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, UnauthenticatedError

from lakestream.errors import Conflict, LakestreamError, ObjectMissing, StoreRefused, Throttled, Unavailable

_STATUS: Final = re.compile(r"non-2xx status code: (\d{3})")
_QUERY: Final = re.compile(r"\?\S*")
"""Of an address: signatures and tokens may be in it."""
_MOST_WORDS: Final = 300
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist", "container does not exist")
_KEY_SERVERS: Final = (
    "169.254.169.254",
    "metadata.google.internal",
    "oauth2.googleapis.com",
    "login.microsoftonline.com",
)
"""Where a client without keys of its own asks for some."""
_WRONG_CLOCK: Final = "RequestTimeTooSkewed"
_THROTTLED: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_AGAIN: Final = (*_THROTTLED, HTTPStatus.REQUEST_TIMEOUT)


def status_of(error: Exception) -> int | None:
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def is_answer(error: Exception) -> bool:
    """Whether a request was sent at all, even if no answer came."""
    return "Error performing" in str(error)


def is_bucket_missing(error: FileNotFoundError) -> bool:
    """Whether the bucket is what is not there."""
    return any(each in str(error) for each in _NO_BUCKET)


def words(error: Exception) -> str:
    """The first line, short, without what may be secret."""
    return _QUERY.sub("", str(error).partition("\n")[0])[:_MOST_WORDS]


def told(url: str, key: str, error: Exception) -> LakestreamError:
    """What the caller of a request for `key` in the store at `url` hears."""
    place, status = f"{url}/{key}".rstrip("/"), status_of(error)
    if status == HTTPStatus.NOT_FOUND or isinstance(error, FileNotFoundError):
        # Only a listing, which has no object to miss, gets here with another class.
        if not isinstance(error, FileNotFoundError) or is_bucket_missing(error):
            return StoreRefused(f"the bucket of {url} does not exist: create it, or correct bucket_url")
        return ObjectMissing(f"{place} does not exist")
    if isinstance(error, AlreadyExistsError):
        return Conflict(f"{place} exists already")
    if _WRONG_CLOCK in str(error):
        return StoreRefused(f"{place}: the object store refuses this machine's clock, which is wrong: set it")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in (401, 403):
        return StoreRefused(
            f"{place}: access was denied, check the credentials and their rights to the bucket: {words(error)}"
        )
    if any(server in str(error) for server in _KEY_SERVERS):
        return StoreRefused(
            f"{place}: there are no credentials in the environment (AWS_…, GOOGLE_…, AZURE_…), and none were found "
            f"elsewhere: {words(error)}"
        )
    if status in _THROTTLED:
        return Throttled(f"{place}: the object store asks for fewer requests: {words(error)}")
    if status is not None and 400 <= status < 500 and status not in _AGAIN:
        return StoreRefused(f"{place}: the object store refused the request: {words(error)}")
    return Unavailable(f"{place}: the object store failed: {words(error)}")
