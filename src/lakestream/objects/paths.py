"""Full addresses of files, and whether one lies inside a folder. Whatever reads, writes or deletes on behalf of a table
asks here.

Engines spell one place in several ways, and a client may try to leave a folder by its spelling. An address is inside a
folder only if it is in every reading: as it is written, with its percent signs decoded, and on a local disk with its
symbolic links followed.
"""

import os
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

_SAME_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
_FILE: Final = "file://"
_DECODINGS: Final = 4
"""Who encodes a name more often than this means to hide something."""


def same_form(path: str) -> str:
    """One spelling per file: `file:/x`, `file:///x` and `/x` are one, and so are `s3a:` and `s3:`. Slashes in a row
    count as one, one at the end as none. What names a host or is relative stays as it is: libraries disagree on it."""
    if path.startswith(_FILE + "/") and "//" not in path[len(_FILE) :] and not path.endswith("/"):
        return path
    scheme, colon, rest = path.partition(":")
    if not colon or "/" in scheme:
        return _FILE + _plain(path) if path.startswith("/") else path
    scheme = scheme.lower()
    if scheme == "file":
        is_absolute = rest.startswith("/") and (not rest.startswith("//") or rest.startswith("///"))
        return _FILE + _plain(rest) if is_absolute else path
    return f"{_SAME_SCHEMES.get(scheme, scheme)}:/{_plain(rest)}"


def _plain(path: str) -> str:
    return "/" + "/".join(filter(None, path.split("/")))


def relative(path: str, folder: str) -> str | None:
    """The path from the folder on, in the same form; None: it begins in another way."""
    form, home = same_form(path), same_form(folder)
    home = home if home.endswith("/") else home + "/"
    return form.removeprefix(home) if form.startswith(home) else None


def is_inside(path: str, folder: str) -> bool:
    """By their spelling alone: below the folder, not the folder itself. What steps up or sideways (`..`, `.`, encoded
    or not, a backslash, a zero byte) is inside nothing."""
    for _ in range(_DECODINGS):
        if _steps(path) or relative(path, folder) is None:
            return False
        decoded = unquote(path)
        if decoded == path:
            # Of a folder with one of these, libraries that read addresses as URLs see only the beginning.
            return not _steps(folder) and "?" not in folder and "#" not in folder
        path = decoded
    return False


def _steps(path: str) -> bool:
    return "\\" in path or "\x00" in path or not {".", ".."}.isdisjoint(path.split("/"))


def really_inside(paths: Iterable[str], folder: str) -> list[str]:
    """Those that are inside with the symbolic links of a local disk followed. One that a path itself names is not:
    who deletes that deletes the link. Blocking."""
    home = local_path(folder)
    known: dict[str, bool] = {}
    found = []
    for path in paths:
        if not is_inside(path, folder):
            continue
        place = local_path(path)
        if place is not None and home is not None:
            parent = os.path.dirname(place)
            if parent not in known:
                known[parent] = _is_below(os.path.realpath(parent), os.path.realpath(home))
            if not known[parent]:
                continue
        found.append(path)
    return found


def is_really_inside(path: str, folder: str) -> bool:
    """The same of one path, for whoever writes there: a link that it names itself is followed, too. Blocking."""
    return is_inside(path, folder) and is_inside(resolved(path), resolved(folder))


def resolved(path: str) -> str:
    """The same form with symbolic links followed, as far as the path exists. Blocking."""
    place = local_path(path)
    return same_form(path) if place is None else same_form(os.path.realpath(place))


def local_path(path: str) -> str | None:
    """On this machine's disk; None: it is in an object store."""
    form = same_form(path)
    return form.removeprefix(_FILE) if form.startswith(_FILE) else None


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
