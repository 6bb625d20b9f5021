"""Share sessions: what a member reads from this broker, so that each of its requests says only what is new.

A session is this broker's alone and dies with it; the member begins another. What it was given stays its own until the
locks lapse: that is in the store. A session whose connection is lost gives back what its member has.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from lakestream.coordination.shares.model import Asked, SessionError

BEGINS: Final = 0
ENDS: Final = -1
_LARGEST: Final = 2**31 - 1

SessionKey = tuple[str, str]
"""Group and member."""


@dataclass(slots=True, eq=False)
class ShareSession:
    key: SessionKey
    connection: object
    epoch: int = 1
    """That of the next request."""
    partitions: dict[Asked, None] = field(default_factory=dict)
    """In the order in which they are looked at; those that gave records go to the back."""

    def change(self, added: Iterable[Asked], forgotten: Iterable[Asked]) -> None:
        for each in added:
            self.partitions.setdefault(each)
        for each in forgotten:
            self.partitions.pop(each, None)

    def served(self, partitions: Iterable[Asked]) -> None:
        for each in partitions:
            if each in self.partitions:
                del self.partitions[each]
                self.partitions[each] = None


class ShareSessions:
    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[object, dict[SessionKey, ShareSession]] = {}

    def begin(self, key: SessionKey, connection: object) -> ShareSession | SessionError:
        """In place of the one that was."""
        self.end(key)
        if len(self._sessions) >= self._most:
            return SessionError.LIMIT_REACHED
        session = ShareSession(key, connection)
        self._sessions[key] = session
        self._by_connection.setdefault(connection, {})[key] = session
        return session

    def go_on(self, key: SessionKey, epoch: int) -> ShareSession | SessionError:
        session = self._sessions.get(key)
        if session is None:
            return SessionError.NOT_FOUND
        if epoch != session.epoch:
            return SessionError.INVALID_EPOCH
        session.epoch = 1 if epoch == _LARGEST else epoch + 1
        return session

    def end(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is not None:
            of_connection = self._by_connection.get(session.connection, {})
            of_connection.pop(key, None)
            if not of_connection:
                self._by_connection.pop(session.connection, None)
        return session

    def lost(self, connection: object) -> Collection[ShareSession]:
        """Those of a connection that is gone. They are over."""
        sessions = list(self._by_connection.get(connection, {}).values())
        for session in sessions:
            self.end(session.key)
        return sessions
