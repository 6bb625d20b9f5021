"""What may be the name of an object, in every store."""

from lakestream.errors import RequestError

TEMPORARY_FOLDER = ".lakestream-tmp"
"""Where a local store keeps unfinished objects; no key may go through it."""

_FORBIDDEN = {"", ".", "..", TEMPORARY_FOLDER}


def check_key(key: str) -> None:
    """Refuses names that could leave the store's root or that another store would change."""
    if not _FORBIDDEN.isdisjoint(key.split("/")) or "\x00" in key or "\\" in key:
        raise RequestError(f"{key!r} cannot be the name of an object")


def normal_prefix(prefix: str) -> str:
    """A listing's prefix as whole segments: empty, or ending in a slash."""
    prefix = prefix.strip("/")
    if not prefix:
        return ""
    check_key(prefix)
    return prefix + "/"
