"""Ranges of S3 objects over plain HTTP, straight from the socket into the memory where they stay.

A general client hands a large answer from thread to thread in pieces and puts it together at the end, which costs a
worker that reads gigabytes more than its decoding does. Here a thread asks for one range, at an address that obstore
signed, and waits once for all of it. What is not the expected answer counts as no answer: the general client then
asks again, and it alone decides what is an error and what is tried how often.
"""

import math
import os
import socket
import struct
import time
import weakref
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

import numpy as np
import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from lakestream.objects.store import Buffer, ByteRange

LANES: Final = 8
"""Threads that read for one caller, and connections that are kept."""
_SIGNED_FOR: Final = timedelta(minutes=10)
_MAX_HEAD_BYTES: Final = 16 * 1024
_MAX_FAILURES: Final = 3
_PAUSE_S: Final = 60.0
"""After so many failures in a row nothing is read in this way for so long."""


class DirectReads:
    """Blocking, for any number of threads."""

    def __init__(self, store: S3Store, timeout: timedelta) -> None:
        self._store = store
        self._timeout_s = timeout.total_seconds()
        self._kept: list[socket.socket] = []
        self._owner = os.getpid()
        self._failures = 0
        self._paused_until_s = 0.0
        weakref.finalize(self, _close_all, self._kept)

    def sign(self, ranges: Sequence[ByteRange]) -> list[SplitResult]:
        """The objects' addresses; none if they have to be read in the ordinary way."""
        if not ranges or self._is_paused():
            return []
        try:
            signed = obstore.sign(self._store, "GET", [each.key for each in ranges], _SIGNED_FOR)
        except BaseError:
            self._paused_until_s = math.inf
            return []
        addresses = [urlsplit(address) for address in signed]
        if not _is_plain(addresses[0]):
            self._paused_until_s = math.inf
            return []
        return addresses

    def read(self, ranges: Iterator[tuple[int, ByteRange, SplitResult]], into: list[Buffer | None]) -> None:
        """One lane: takes ranges until there are none or too many fail; what was read is put at its index."""
        for index, wanted, address in ranges:
            if self._is_paused():
                return
            into[index] = data = self._read(wanted, address)
            self._failures = 0 if data is not None else self._failures + 1
            if self._failures >= _MAX_FAILURES:
                self._failures = 0
                self._paused_until_s = time.monotonic() + _PAUSE_S

    def _is_paused(self) -> bool:
        return time.monotonic() < self._paused_until_s

    def _read(self, wanted: ByteRange, address: SplitResult) -> Buffer | None:
        """The store may have closed a kept connection meanwhile, which shows only when it is used."""
        kept = self._connection()
        if kept is not None and (data := self._ask(kept, wanted, address)) is not None:
            return data
        try:
            connection = self._connect(address)
        except OSError:
            return None
        return self._ask(connection, wanted, address)

    def _connection(self) -> socket.socket | None:
        if self._owner != os.getpid():
            # What a parent process has opened is the parent's to use.
            _close_all(self._kept)
            self._owner = os.getpid()
        try:
            return self._kept.pop()
        except IndexError:
            return None

    def _connect(self, address: SplitResult) -> socket.socket:
        connection = socket.create_connection((address.hostname, address.port or 80), self._timeout_s)
        # The system's own timeouts leave the socket blocking, so that one call can wait for a whole range.
        connection.settimeout(None)
        seconds, rest = divmod(round(self._timeout_s * 1e6), 1_000_000)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, rest))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _ask(self, connection: socket.socket, wanted: ByteRange, address: SplitResult) -> Buffer | None:
        try:
            data, reusable = _exchange(connection, wanted, address)
        except OSError:
            data, reusable = None, False
        if reusable and len(self._kept) < LANES:
            self._kept.append(connection)
        else:
            connection.close()
        return data


def _close_all(connections: list[socket.socket]) -> None:
    while connections:
        connections.pop().close()


def _is_plain(address: SplitResult) -> bool:
    """Whether it is reached without encryption and without a proxy."""
    through_proxy = "http" in getproxies() and not proxy_bypass(address.hostname or "")
    return address.scheme == "http" and not through_proxy


def _exchange(connection: socket.socket, wanted: ByteRange, address: SplitResult) -> tuple[Buffer | None, bool]:
    """The range, if the answer is exactly it, and whether the connection is good for another request."""
    last = wanted.start + wanted.length - 1
    request = (
        f"GET {address.path}?{address.query} HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Range: bytes={wanted.start}-{last}\r\n\r\n"
    )
    connection.sendall(request.encode("ascii"))
    head, rest = _head(connection)
    status, fields = _parse(head)
    if not _is_range(status, fields, wanted) or len(rest) > wanted.length:
        return None, False
    data = np.empty(wanted.length, np.uint8).data
    data[: len(rest)] = rest
    filled = len(rest)
    while filled < wanted.length:
        got = connection.recv_into(data[filled:], wanted.length - filled, socket.MSG_WAITALL)
        if not got:
            return None, False
        filled += got
    return data, fields.get("connection", "").lower() != "close"


def _head(connection: socket.socket) -> tuple[bytes, bytes]:
    """The answer's head and what came with it of the body; empty if there is none."""
    held = b""
    while len(held) < _MAX_HEAD_BYTES:
        end = held.find(b"\r\n\r\n")
        if end >= 0:
            return held[:end], held[end + 4 :]
        more = connection.recv(4096)
        if not more:
            break
        held += more
    return b"", b""


def _parse(head: bytes) -> tuple[str, dict[str, str]]:
    status, *lines = head.decode("latin-1").split("\r\n")
    return status, {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _is_range(status: str, fields: dict[str, str], wanted: ByteRange) -> bool:
    """Whether these very bytes follow, as they are."""
    return (
        status.startswith("HTTP/1.1 206")
        and fields.get("content-length") == str(wanted.length)
        and fields.get("content-range", "").startswith(f"bytes {wanted.start}-{wanted.start + wanted.length - 1}/")
        and not fields.keys() & {"transfer-encoding", "content-encoding"}
    )
