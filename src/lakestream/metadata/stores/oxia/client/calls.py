"""Calls of Oxia's gRPC service, and what their failures mean to a caller of the store."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from grpclib.client import Channel, StreamStreamMethod, UnaryStreamMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from lakestream.errors import RequestError, Unavailable
from lakestream.metadata.stores.oxia.client.wire import oxia_pb2 as wire

SERVICES: Final = ("io.oxia.proto.v1.OxiaClient", "io.streamnative.oxia.proto.OxiaClient")
"""Newer servers have the first name, older ones the second."""
LOST: Final = (OSError, GRPCError, ProtocolError, StreamTerminatedError, TimeoutError, ConnectionError)
NAMESPACE_NOT_FOUND: Final = 110
_NUMBER: Final = re.compile(r"Invalid grpc-status: '(\d+)'")


class Calls:
    """Of one server."""

    def __init__(self, channel: Channel, service: str) -> None:
        self.channel = channel
        self.assignments = UnaryStreamMethod(
            channel, f"/{service}/GetShardAssignments", wire.ShardAssignmentsRequest, wire.ShardAssignments
        )
        self.write = StreamStreamMethod(channel, f"/{service}/WriteStream", wire.WriteRequest, wire.WriteResponse)
        self.read = UnaryStreamMethod(channel, f"/{service}/Read", wire.ReadRequest, wire.ReadResponse)
        self.scan = UnaryStreamMethod(channel, f"/{service}/RangeScan", wire.RangeScanRequest, wire.RangeScanResponse)
        self.notifications = UnaryStreamMethod(
            channel, f"/{service}/GetNotifications", wire.NotificationsRequest, wire.NotificationBatch
        )


def code_of(error: GRPCError) -> int:
    """Oxia has codes of its own from 100 on, which the library only quotes."""
    found = _NUMBER.search(error.message or "")
    return int(found.group(1)) if found else error.status.value


def is_unknown_service(error: BaseException) -> bool:
    return isinstance(error, GRPCError) and error.status is Status.UNIMPLEMENTED


def opening_error(place: str, namespace: str, error: BaseException) -> RequestError | Unavailable:
    """What the operator has to mend."""
    if isinstance(error, GRPCError):
        if code_of(error) == NAMESPACE_NOT_FOUND or error.status is Status.NOT_FOUND:
            return RequestError(
                f"{place}: there is no namespace {namespace!r}; create it in the configuration of Oxia's coordinator,"
                " or name another one in metadata_url"
            )
        if error.status is Status.UNIMPLEMENTED or "content-type" in (error.message or ""):
            return RequestError(f"{place} is no Oxia server, or one of a version that lakestream does not know")
        if error.status in (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED):
            return RequestError(f"{place} wants a login, which lakestream does not have: {_words(error)}")
    if isinstance(error, ProtocolError):
        return RequestError(f"{place} does not speak gRPC without TLS: {_words(error)}")
    return Unavailable(f"{place} cannot be reached: {_words(error)}")


@contextmanager
def errors_translated(place: str) -> Iterator[None]:
    """What is not known to be decided is unknown."""
    try:
        yield
    except LOST as error:
        raise Unavailable(f"{place} did not answer, the outcome is unknown: {_words(error)}") from error


def _words(error: BaseException) -> str:
    if isinstance(error, GRPCError):
        return f"{error.status.name}: {error.message}" if error.message else error.status.name
    return str(error).splitlines()[0] if str(error) else type(error).__name__
