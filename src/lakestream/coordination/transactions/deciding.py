"""What becomes of a transactional id's state: pure functions, with Kafka's rules.

    EMPTY ──first partition──► ONGOING ──commit or abort──► PREPARE_* ──all is ended──► COMPLETE_* ──► ONGOING …

A producer writes in an epoch; whoever has an older one is fenced. The epoch goes up when a producer begins anew, when
somebody else aborts its transaction, and with each end that a client of transactions' version 2 asks for. When a
producer id has used its epochs up, the next one begins with a new id.
"""

from typing import Final, NamedTuple

import msgspec

from lakestream.errors import ConcurrentTransactions, InvalidTransactionState, ProducerFenced, UnknownTransaction
from lakestream.metadata.transactions import TransactionEnd, TransactionState

MAX_EPOCH: Final = 32_767
"""Fences the last epoch that a client may have; nobody is told it."""
LAST_EPOCH: Final = MAX_EPOCH - 1
NO_EPOCH: Final = -1
NO_PRODUCER: Final = -1


class Producer(NamedTuple):
    """Who writes: its id and epoch."""

    producer_id: int
    epoch: int


def producer_of(state: TransactionState) -> Producer:
    return Producer(state.producer_id, state.epoch)


def created(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> TransactionState:
    """Of an id that nobody has used yet."""
    return TransactionState(transactional_id, producer_id, 0, timeout_ms, now_ms)


def check_expected(state: TransactionState, expected: Producer | None) -> None:
    """Whether a producer that says who it was may begin anew. Raises `ProducerFenced`."""
    if expected is None or expected == producer_of(state) or _is_told_again(state, expected):
        return
    raise _fenced(state, expected)


def needs_producer_id(state: TransactionState, expected: Producer | None) -> bool:
    """Whether the producer's id has no epoch left for it."""
    return state.epoch >= LAST_EPOCH and not (expected is not None and _is_told_again(state, expected))


def begun_anew(
    state: TransactionState, expected: Producer | None, fresh_id: int | None, timeout_ms: int, now_ms: int
) -> TransactionState:
    """With the epoch in which its producer, or another, now writes. No transaction is open or being ended. `fresh_id`
    where one is needed. A producer that says who it was and is told the same as before did not hear it."""
    epoch, producer_id, previous_id, last_epoch = (
        state.epoch + 1,
        state.producer_id,
        state.previous_producer_id,
        NO_EPOCH if expected is None else expected.epoch,
    )
    if expected is not None and _is_told_again(state, expected):
        epoch, last_epoch = state.epoch, state.last_epoch
    elif fresh_id is not None:
        epoch, producer_id, previous_id = 0, fresh_id, state.producer_id
    return msgspec.structs.replace(
        state,
        producer_id=producer_id,
        epoch=epoch,
        previous_producer_id=previous_id,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        changed_ms=now_ms,
        phase="EMPTY",
        started_ms=-1,
        end=None,
    )


def joined(state: TransactionState | None, producer: Producer, now_ms: int) -> TransactionState:
    """With a transaction that is open: the present one, or one that begins. Raises what is in the way."""
    present = _checked(state, producer)
    if present.is_ending:
        raise _ending(present)
    if present.phase == "ONGOING":
        return present
    return msgspec.structs.replace(
        present, phase="ONGOING", number=present.number + 1, started_ms=now_ms, changed_ms=now_ms, end=None
    )


def ongoing(state: TransactionState | None, producer: Producer) -> TransactionState:
    """With the transaction that this producer has open. Raises what is in the way."""
    present = _checked(state, producer)
    if present.is_ending:
        raise _ending(present)
    if present.phase != "ONGOING":
        raise InvalidTransactionState(f"no transaction of {present.transactional_id} is open")
    return present


def ended_before(state: TransactionState, producer: Producer, *, committed: bool, bumps: bool) -> bool:
    """Whether this request to end a transaction is one that was made before: that end is prepared or done. Raises
    `InvalidTransactionState` if it was another end."""
    end = state.end
    if end is None or Producer(end.producer_id, end.epoch) != producer:
        return False
    if bumps and (end.next_epoch is None or not end.by_client):
        return False
    if not bumps and end.next_epoch is not None:
        return False
    if end.committed != committed:
        raise _no_such_end(state, committed)
    return True


def ending_by_client(
    state: TransactionState | None,
    producer: Producer,
    *,
    committed: bool,
    bumps: bool,
    fresh_id: int | None,
    now_ms: int,
) -> TransactionState:
    """With the end prepared; with nothing to end, ended. `bumps`: the client goes on in the next epoch, as in
    transactions' version 2, where it may abort a transaction that has nothing, too. `fresh_id`: for when there is no
    next one."""
    present = _checked(state, producer)
    if present.is_ending:
        raise _ending(present)
    is_open = present.phase == "ONGOING"
    if not is_open and (committed or not bumps):
        raise _no_such_end(present, committed)
    if not bumps:
        return _ending_with(present, producer, committed, None, True, now_ms)
    follows = Producer(producer.producer_id, producer.epoch + 1)
    if producer.epoch >= LAST_EPOCH:
        assert fresh_id is not None
        follows = Producer(fresh_id, 0)
    prepared = _ending_with(present, follows, committed, producer.epoch + 1, True, now_ms)
    prepared = msgspec.structs.replace(prepared, last_epoch=producer.epoch)
    return prepared if is_open else completed(prepared, now_ms)


def aborted_by_others(state: TransactionState, now_ms: int) -> TransactionState:
    """With the abort of the open transaction prepared, and its producer fenced."""
    epoch = min(state.epoch + 1, MAX_EPOCH)
    prepared = _ending_with(state, Producer(state.producer_id, epoch), False, epoch, False, now_ms)
    return msgspec.structs.replace(prepared, last_epoch=NO_EPOCH)


def completed(state: TransactionState, now_ms: int) -> TransactionState:
    """After everything that the transaction had is ended."""
    committed = state.phase == "PREPARE_COMMIT"
    return msgspec.structs.replace(state, phase="COMPLETE_COMMIT" if committed else "COMPLETE_ABORT", changed_ms=now_ms)


def _ending_with(
    state: TransactionState,
    follows: Producer,
    committed: bool,
    next_epoch: int | None,
    by_client: bool,
    now_ms: int,
) -> TransactionState:
    end = TransactionEnd(state.producer_id, state.epoch, committed, next_epoch, by_client)
    previous = state.previous_producer_id if follows.producer_id == state.producer_id else state.producer_id
    return msgspec.structs.replace(
        state,
        phase="PREPARE_COMMIT" if committed else "PREPARE_ABORT",
        producer_id=follows.producer_id,
        epoch=follows.epoch,
        previous_producer_id=previous,
        changed_ms=now_ms,
        end=end,
    )


def _is_told_again(state: TransactionState, expected: Producer) -> bool:
    """Whether the present epoch is the answer that this producer was given before, and did not hear."""
    if state.phase == "ONGOING" or expected.epoch != state.last_epoch or expected.epoch == NO_EPOCH:
        return False
    owner = state.previous_producer_id if state.epoch == 0 else state.producer_id
    return expected.producer_id == owner


def _checked(state: TransactionState | None, producer: Producer) -> TransactionState:
    if state is None:
        raise UnknownTransaction("nobody has begun to use this transactional id, or not for long: begin with it anew")
    if state.producer_id != producer.producer_id:
        raise UnknownTransaction(
            f"transactional id {state.transactional_id} is not that of producer {producer.producer_id}"
        )
    if state.epoch != producer.epoch:
        raise _fenced(state, producer)
    return state


def _fenced(state: TransactionState, producer: Producer) -> ProducerFenced:
    return ProducerFenced(
        f"producer {producer.producer_id} in epoch {producer.epoch} may not use transactional id"
        f" {state.transactional_id} any more: a newer one has it, or its transaction took too long"
    )


def _ending(state: TransactionState) -> ConcurrentTransactions:
    return ConcurrentTransactions(f"the transaction of {state.transactional_id} before this is being ended: ask again")


def _no_such_end(state: TransactionState, committed: bool) -> InvalidTransactionState:
    wanted = "committed" if committed else "aborted"
    return InvalidTransactionState(
        f"no transaction of {state.transactional_id} can be {wanted}: it is {state.phase.replace('_', ' ').lower()}"
    )
