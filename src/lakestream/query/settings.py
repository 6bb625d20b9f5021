"""What queries may take of the machine: text and numbers only."""

import msgspec

MIB = 1024 * 1024


class QuerySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """SQL over tables and tails, in processes of its own beside the HTTP door."""

    workers: int = 2
    """Queries that run at once, each in a process of its own. 0: there are no queries."""
    threads: int = 1
    """Of each. With more, sums of floating point numbers depend on luck, and citations of them may not replay."""
    memory_bytes: int = 512 * MIB
    """That a query may take for sorting, grouping and joining. Nothing is spilled to disk."""
    process_bytes: int = 1536 * MIB
    """A process that takes more than this, all included, is ended, and its query refused."""
    timeout_ms: int = 30_000
    """The longest that a query may run. A caller may ask for less."""
    max_rows: int = 10_000
    """Rows of an answer, where the caller does not ask for fewer or more."""
    most_rows: int = 1_000_000
    """More than these nobody gets in one answer."""
    answer_bytes: int = 32 * MIB
    """An answer as it is sent."""
    answers_bytes: int = 256 * MIB
    """Of all answers that clients have not read yet."""
    query_bytes: int = 256 * 1024
    """The text of a query."""
    waiting: int = 200
    """Queries that wait for a process. More are refused at once."""
    wait_ms: int = 20_000
    """How long one waits for a process before it is refused."""
    tail_bytes: int = 64 * MIB
    """A tail is decoded for each query that reads it. A larger one is committed to the table first."""
    key_tail_bytes: int = 256 * MIB
    """The same for lookups by key: of a tail that was looked at once only its keys are kept."""
