"""The server: each call in a thread of gRPC's, whose work is done on the door's event loop.

Nothing is kept between calls. A ticket has the statement in it, which runs when the ticket is redeemed; so does the
handle of a prepared statement, with the values that were bound. The citation of an answer is in the metadata of its
schema. An answer that would be cut off is refused: a client of Flight would take it for all of it.
"""

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyarrow import flight

from lakestream.access import ANONYMOUS, Principal
from lakestream.errors import LakestreamError, QueryLimit, RequestError
from lakestream.flight import metadata
from lakestream.flight.commands import pack, plain, unpack
from lakestream.flight.errors import as_flight
from lakestream.flight.statements import Statement, as_handle, from_handle
from lakestream.metadata.names.rows import TableName
from lakestream.query.citations import as_token
from lakestream.query.looking import Tables
from lakestream.query.messages import AnswerFormat
from lakestream.query.queries import Queries
from lakestream.query.questions import QueryAnswer, Question
from lakestream.table.parquet.arrow import arrow_schema

_log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Coroutine[Any, Any, T]

CITATION: Final = "lakestream.citation"
_LOOK_S: Final = 0.2
"""How often a call that waits looks whether its client is still there."""
_PREPARE: Final = "CreatePreparedStatement"
_CLOSE: Final = "ClosePreparedStatement"
_ACTIONS: Final = ((_PREPARE, "Prepares a SELECT."), (_CLOSE, "Does nothing: there is nothing to close."))


def _told(call: Callable[..., T]) -> Callable[..., T]:
    """The call, whose errors are Flight's."""

    @wraps(call)
    def telling(*arguments: Any) -> T:
        try:
            return call(*arguments)
        except LakestreamError as error:
            raise as_flight(error) from error
        except flight.FlightError:
            raise
        except Exception:
            _log.exception("a call of Flight failed")
            raise flight.FlightInternalError("storage_error: the call failed; the log of the door says why") from None

    return telling


class FlightDoor(flight.FlightServerBase):  # type: ignore[misc]
    """Serves from the moment that it is made; raises `FlightServerError` if it cannot listen there."""

    def __init__(self, location: str, queries: Queries, tables: Tables, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(location)
        self._queries = queries
        self._tables = tables
        self._held = queries.held
        self._loop = loop
        self._calls: set[concurrent.futures.Future[Any]] = set()

    def end(self, drain_s: float) -> None:
        """Waits a while for what is still asked, and gives the rest up. Who has not read an answer by then is left to
        the end of the process: gRPC knows no other end of a stream that nobody reads."""
        concurrent.futures.wait([*self._calls], drain_s)
        for call in [*self._calls]:
            call.cancel()
        ending = threading.Thread(target=self.shutdown, name="end of flight", daemon=True)
        ending.start()
        ending.join(drain_s)

    @_told
    def get_flight_info(self, _context: Any, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        """Where the answer is: here, whatever is asked. Its schema comes with it."""
        name, command = unpack(descriptor.command or b"")
        ticket = descriptor.command
        if name == "CommandStatementQuery":
            ticket = pack("TicketStatementQuery", statement_handle=as_handle(Statement(command.query)))
        elif name == "CommandPreparedStatementQuery":
            from_handle(command.prepared_statement_handle)
        return flight.FlightInfo(None, descriptor, [flight.FlightEndpoint(flight.Ticket(ticket), [])])

    @_told
    def get_schema(self, context: Any, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        name, command = unpack(descriptor.command or b"")
        if name == "CommandStatementQuery":
            return flight.SchemaResult(self._prepared(context, command.query)[1])
        if name == "CommandPreparedStatementQuery":
            statement = from_handle(command.prepared_statement_handle)
            return flight.SchemaResult(self._prepared(context, statement.query)[1])
        return flight.SchemaResult(self._described(context, name, command).schema)

    @_told
    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        name, command = unpack(ticket.ticket)
        if name == "TicketStatementQuery":
            return self._answer(context, from_handle(command.statement_handle))
        if name == "CommandPreparedStatementQuery":
            return self._answer(context, from_handle(command.prepared_statement_handle))
        return flight.RecordBatchStream(self._described(context, name, command))

    @_told
    def do_put(
        self, _context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: flight.FlightMetadataWriter
    ) -> None:
        """Binds values: the client goes on with the handle that it gets."""
        name, command = unpack(descriptor.command or b"")
        if name != "CommandPreparedStatementQuery":
            raise RequestError("only SELECT can be asked here: tables are written by producing records")
        statement = from_handle(command.prepared_statement_handle)
        rows = reader.read_all()
        if rows.num_columns:
            statement = statement.bound(rows.combine_chunks().to_batches()[0] if rows.num_rows else _NO_ROW)
        bound = plain("DoPutPreparedStatementResult", prepared_statement_handle=as_handle(statement))
        writer.write(pa.py_buffer(bound))

    @_told
    def do_action(self, context: Any, action: flight.Action) -> list[flight.Result]:
        if action.type == _CLOSE:
            return []
        if action.type != _PREPARE:
            raise RequestError(f"the action {action.type[:100]} is not served here")
        _name, command = unpack(action.body.to_pybytes())
        statement, schema = self._prepared(context, command.query)
        # DuckDB does not tell what a parameter is compared with; a text is taken for it.
        wanted = pa.schema([pa.field(name, pa.string()) for name in statement.names])
        made = pack(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=as_handle(statement),
            dataset_schema=_serialized(schema),
            parameter_schema=_serialized(wanted),
        )
        return [flight.Result(pa.py_buffer(made))]

    def list_actions(self, _context: Any) -> list[flight.ActionType]:
        return [flight.ActionType(name, told) for name, told in _ACTIONS]

    def list_flights(self, _context: Any, _criteria: bytes) -> Iterator[flight.FlightInfo]:
        return iter(())

    def _prepared(self, context: Any, text: str) -> tuple[Statement, pa.Schema]:
        """Raises what asking raises."""
        query = text.rstrip().rstrip(";")
        statement = Statement(query, names=self._done(context, self._queries.parameters(query)))
        nothing = statement.named([None] * len(statement.names))
        question = Question(f"SELECT * FROM (\n{query}\n) LIMIT 0", nothing, format=AnswerFormat.ARROW)
        answer = self._done(context, self._queries.ask(_caller(context), question))
        return statement, _reader(answer).schema

    def _answer(self, context: Any, statement: Statement) -> flight.FlightDataStream:
        most_rows = self._queries.settings.most_rows
        question = Question(statement.query, statement.parameters, max_rows=most_rows, format=AnswerFormat.ARROW)
        answer = self._done(context, self._queries.ask(_caller(context), question))
        if answer.citation.truncated:
            raise QueryLimit(f"the answer has more than {most_rows} rows: aggregate in the query, or ask for fewer")
        self._held.check(len(answer.body))
        schema = _reader(answer).schema.with_metadata({CITATION: as_token(answer.citation)})
        return flight.GeneratorStream(schema, self._batches(answer))

    def _batches(self, answer: QueryAnswer) -> Iterator[pa.RecordBatch]:
        with self._held.holding(len(answer.body)):
            yield from _reader(answer)

    def _described(self, context: Any, name: str, command: Any) -> pa.Table:
        if name == "CommandGetSqlInfo":
            return metadata.sql_info(command.info)
        if name == "CommandGetCatalogs":
            return metadata.catalogs()
        if name == "CommandGetTableTypes":
            return metadata.table_types()
        if name in metadata.EMPTY:
            return metadata.EMPTY[name].empty_table()
        if name not in ("CommandGetDbSchemas", "CommandGetTables"):
            raise RequestError(f"{name} is no question")
        of_other = command.HasField("catalog") and command.catalog != metadata.CATALOG
        known = [] if of_other else self._done(context, self._tables.names(_caller(context)))
        if command.HasField("db_schema_filter_pattern"):
            known = [each for each in known if metadata.like(command.db_schema_filter_pattern, _namespace(each))]
        if name == "CommandGetDbSchemas":
            return metadata.namespaces(map(_namespace, known))
        if command.HasField("table_name_filter_pattern"):
            known = [each for each in known if metadata.like(command.table_name_filter_pattern, each.name)]
        if command.table_types and metadata.TABLE not in command.table_types:
            known = []
        found = [(_namespace(each), each.name, self._schema(context, each, command)) for each in known]
        return metadata.tables(found, with_schema=command.include_schema)

    def _schema(self, context: Any, name: TableName, command: Any) -> bytes | None:
        if not command.include_schema:
            return None
        return _serialized(self._done(context, self._schema_of(_caller(context), name)))

    async def _schema_of(self, principal: Principal, name: TableName) -> pa.Schema:
        """Of a table that the caller may not read, nothing."""
        try:
            found = await self._tables.find(principal, name)
            if found.topic is not None:
                return _bare(arrow_schema(await self._tables.shape(found)))
            text = f"SELECT * FROM lakestream.{_quoted('.'.join(name.namespace))}.{_quoted(name.name)} LIMIT 0"
            return _reader(await self._queries.ask(principal, Question(text, format=AnswerFormat.ARROW))).schema
        except LakestreamError:
            return pa.schema([])

    def _done(self, context: Any, work: "Work[T]") -> T:
        """What the work comes to, on the door's loop. It is cancelled when the client goes away."""
        call = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._calls.add(call)
        try:
            while True:
                try:
                    return call.result(_LOOK_S)
                except concurrent.futures.TimeoutError:
                    if call.done():
                        return call.result()
                    if context.is_cancelled():
                        raise flight.FlightCancelledError("the client is gone") from None
        except concurrent.futures.CancelledError:
            raise flight.FlightUnavailableError("this door is stopping: ask another") from None
        finally:
            self._calls.discard(call)
            call.cancel()


_NO_ROW: Final = pa.RecordBatch.from_arrays([], names=[])


def _caller(_context: Any) -> Principal:
    """Nobody is asked yet who they are."""
    return ANONYMOUS


def _bare(schema: pa.Schema) -> pa.Schema:
    """Without the ids of fields."""
    return pa.schema([pa.field(field.name, field.type, field.nullable) for field in schema])


def _reader(answer: QueryAnswer) -> pa.RecordBatchReader:
    return pa.ipc.open_stream(pa.py_buffer(answer.body))


def _serialized(schema: pa.Schema) -> bytes:
    """As a message of Arrow's stream format."""
    data: bytes = schema.serialize().to_pybytes()
    return data


def _namespace(name: TableName) -> str:
    return ".".join(name.namespace)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
