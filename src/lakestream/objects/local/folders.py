"""Folders that survive a power cut."""

import os
import stat
import weakref
from collections import OrderedDict
from contextlib import suppress
from threading import Lock
from typing import Final

KNOWN_FOLDERS: Final = 64


class DurableFolders:
    """The folders below a root whose names are known to be on disk, all the way up.

    Another process may have made a folder and not synced it yet, so the first use of every
    folder syncs its parent. An open descriptor proves later that a path still is that folder:
    while it is open, the inode number is not given to another.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = Lock()
        self._known: OrderedDict[str, int] = OrderedDict()
        weakref.finalize(self, _close_all, self._known).atexit = False

    def ensure(self, folder: str) -> None:
        """Makes the folder (the root or one below it) if it is missing. FileNotFoundError if a parent vanishes
        meanwhile: try again."""
        if self._knows(folder):
            return
        if folder == self._root:
            _make_root(folder)
        else:
            parent = os.path.dirname(folder)
            self.ensure(parent)
            _make(folder)
            sync_folder(parent)
        self._remember(folder, os.open(folder, os.O_RDONLY | os.O_DIRECTORY))

    def _knows(self, folder: str) -> bool:
        with self._lock:
            descriptor = self._known.get(folder)
            if descriptor is None:
                return False
            if _is_folder(descriptor, folder):
                self._known.move_to_end(folder)
                return True
            os.close(self._known.pop(folder))
            return False

    def _remember(self, folder: str, descriptor: int) -> None:
        with self._lock:
            if folder in self._known:
                os.close(self._known.pop(folder))
            self._known[folder] = descriptor
            if len(self._known) > KNOWN_FOLDERS:
                os.close(self._known.popitem(last=False)[1])


def sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_root(root: str) -> None:
    made = []
    folder = root
    while not os.path.isdir(folder):
        made.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(made):
        _make(folder)
        sync_folder(os.path.dirname(folder))
    if not made:
        with suppress(PermissionError):  # a root given to us inside a folder that is not ours
            sync_folder(os.path.dirname(root))


def _make(folder: str) -> None:
    try:
        os.mkdir(folder)
    except FileExistsError:
        # One look: it may be gone again by now, which is FileNotFoundError, not a file in the way.
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise


def _is_folder(descriptor: int, folder: str) -> bool:
    try:
        found = os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)


def _close_all(known: OrderedDict[str, int]) -> None:
    while known:
        os.close(known.popitem()[1])
