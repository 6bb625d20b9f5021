"""Append: choose a generation, PUT the object, commit each partition, acknowledge; and all that can go wrong.

A commit is one step although it reads the head and then compares and sets it: a lost compare changes nothing, and a
won one says that the head was still the one read. Marks are not stored: the head shows the mark of a flush exactly
if its commit was applied and the fence is not above its generation.
"""

from collections.abc import Iterator
from itertools import product

from .cells import Phase, Shape, State, Status
from .changes import remove_object, settle
from .step import CLIENT, FAIR, FAULT, Rules, Step, head_changed

WHO = "broker {0}, flush {1}: "


def steps(rules: Rules, state: State) -> Iterator[Step]:
    shape = rules.shape
    for f in shape.flushes:
        match state[shape.phase[f]]:
            case Phase.IDLE:
                yield from _begin(shape, state, f)
            case Phase.STAMPED:
                yield from _upload(rules, state, f)
                if "commit-before-upload" in rules.bugs:
                    yield from _commit(rules, state, f)
            case Phase.UPLOADED:
                yield from _commit(rules, state, f)
                yield from _upload_again(shape, state, f)
        yield from _land(rules, state, f)
    for broker in range(rules.bounds.brokers):
        yield from _crash(rules, state, broker)


def _at(shape: Shape, flush: int, *more: int) -> tuple[int, ...]:
    return (shape.broker(flush), flush % shape.bounds.flushes, *more)


def _begin(shape: Shape, state: State, f: int) -> Iterator[Step]:
    if any(state[shape.phase[earlier]] == Phase.IDLE for earlier in shape.flushes_of(shape.broker(f)) if earlier < f):
        return
    cells = list(state)
    cells[shape.phase[f]] = Phase.STAMPED
    cells[shape.stamp[f]] = cells[shape.generation]
    for p in shape.partitions:
        cells[shape.status[f][p]] = Status.TO_COMMIT
    yield Step(
        WHO + "takes records for every partition, generation {2}", _at(shape, f, cells[shape.stamp[f]]), cells, CLIENT
    )


def _upload(rules: Rules, state: State, f: int) -> Iterator[Step]:
    """The broker may have learnt its generation long ago: the step that stamped it is another one."""
    shape = rules.shape
    free = next((k for k in shape.objects if not state[shape.object[f][k]]), None)
    if free is None:
        return
    cells = list(state)
    cells[shape.object[f][free]] = state[shape.stamp[f]]
    for p in shape.partitions:
        cells[shape.section[f][free][p]] = 1 if state[shape.status[f][p]] == Status.TO_COMMIT else 0
    landed = list(cells)
    landed[shape.stamp[f]] = landed[shape.generation]
    cells[shape.phase[f]] = Phase.UPLOADED
    cells[shape.upload[f]] = free
    if "ack-before-commit" in rules.bugs:
        for p in shape.partitions:
            if cells[shape.status[f][p]] == Status.TO_COMMIT:
                cells[shape.status[f][p]] = Status.ACKED
        settle(shape, cells, f)
    yield Step(WHO + "PUT object {2}", _at(shape, f, free), cells, FAIR)
    yield Step(
        WHO + "PUT object {2} lands, its reply is lost: a fresh name is tried", _at(shape, f, free), landed, FAULT
    )


def _upload_again(shape: Shape, state: State, f: int) -> Iterator[Step]:
    statuses = [state[cell] for cell in shape.status[f]]
    if any(status in (Status.TO_COMMIT, Status.UNKNOWN, Status.IN_FLIGHT, Status.APPLIED) for status in statuses):
        return
    cells = list(state)
    cells[shape.phase[f]] = Phase.STAMPED
    cells[shape.stamp[f]] = cells[shape.generation]
    cells[shape.upload[f]] = 0
    for p in shape.partitions:
        if cells[shape.status[f][p]] == Status.FENCED:
            cells[shape.status[f][p]] = Status.TO_COMMIT
    yield Step(WHO + "starts over, generation {2}", _at(shape, f, cells[shape.stamp[f]]), cells, FAIR)


def may_commit(rules: Rules, state: State, f: int) -> bool:
    """Its object is there, and the broker's earlier flushes are decided."""
    shape = rules.shape
    uploaded = state[shape.phase[f]] == Phase.UPLOADED or "commit-before-upload" in rules.bugs
    earlier = range(shape.flushes_of(shape.broker(f)).start, f)
    return uploaded and all(state[shape.phase[each]] == Phase.OVER for each in earlier)


def _commit(rules: Rules, state: State, f: int) -> Iterator[Step]:
    shape = rules.shape
    if not may_commit(rules, state, f):
        return
    for p in shape.partitions:
        refused = state[shape.stamp[f]] < state[shape.fence[p]] and "commit-ignores-the-fence" not in rules.bugs
        match state[shape.status[f][p]]:
            case Status.TO_COMMIT if refused:
                yield _decide(shape, state, f, p, Status.FENCED, "partition {2} refuses its generation")
            case Status.UNKNOWN if refused:
                yield from _lost(rules, state, f, p)
            case Status.APPLIED:
                yield from _learn(rules, state, f, p, refused=refused)
            case Status.TO_COMMIT | Status.UNKNOWN | Status.IN_FLIGHT as status:
                yield _apply(rules, state, f, p, Status.ACKED, "commit to partition {2}, ack", FAIR)
                yield _apply(
                    rules, state, f, p, Status.APPLIED, "commit to partition {2} is applied, reply lost", FAULT
                )
                if status == Status.TO_COMMIT:
                    yield _decide(shape, state, f, p, Status.UNKNOWN, "commit request to partition {2} is lost", FAULT)
                if status != Status.IN_FLIGHT:
                    yield _decide(
                        shape, state, f, p, Status.IN_FLIGHT, "commit request to partition {2} is late", FAULT
                    )


def _learn(rules: Rules, state: State, f: int, p: int, *, refused: bool) -> Iterator[Step]:
    """The commit was applied, which the broker does not know yet."""
    shape = rules.shape
    if "retry-after-unknown-outcome" in rules.bugs:
        yield _apply(rules, state, f, p, Status.ACKED, "sends its records to partition {2} as a new flush, ack", FAIR)
    elif "outcome-decided-by-the-extent" in rules.bugs and not state[shape.extent[f][p]]:
        yield _apply(rules, state, f, p, Status.ACKED, "finds no extent in partition {2}, commits, ack", FAIR)
    elif refused:
        yield from _lost(rules, state, f, p)
    else:
        yield _decide(shape, state, f, p, Status.ACKED, "finds its mark in partition {2}, ack")


def _lost(rules: Rules, state: State, f: int, p: int) -> Iterator[Step]:
    """The fence has passed the flush while its outcome was unknown: no mark may be left to tell it."""
    shape = rules.shape
    if "unknown-outcome-uploaded-again" in rules.bugs:
        yield _decide(shape, state, f, p, Status.FENCED, "partition {2} refuses its generation")
        return
    text = "the fence of partition {2} has passed, the outcome stays unknown: error"
    step = _decide(shape, state, f, p, Status.FAILED, text)
    if "upload-deleted-after-unknown-outcome" in rules.bugs and state[shape.upload[f]] != shape.gone:
        problem = remove_object(shape, step.cells, f, state[shape.upload[f]])
        step = step._replace(text=step.text + ", and deletes its object", problem=problem)
    yield step


def _decide(shape: Shape, state: State, f: int, p: int, status: Status, text: str, kind: str = FAIR) -> Step:
    cells = list(state)
    cells[shape.status[f][p]] = status
    settle(shape, cells, f)
    return Step(WHO + text, _at(shape, f, p), cells, kind)


def _apply(rules: Rules, state: State, f: int, p: int, status: Status, text: str, kind: str) -> Step:
    """One transaction: offset, extent, mark, a new version of the head."""
    shape = rules.shape
    cells = list(state)
    problem = "a record is in the log twice" if cells[shape.place[f][p]] else ""
    offset = shape.next_offset(cells, p)
    cells[shape.place[f][p]] = offset + 1
    cells[shape.extent[f][p]] = cells[shape.upload[f]] + 1
    cells[shape.status[f][p]] = status
    head_changed(rules, cells, p)
    settle(shape, cells, f)
    return Step(WHO + text + " (offset {3})", _at(shape, f, p, offset), cells, kind, problem)


def _land(rules: Rules, state: State, f: int) -> Iterator[Step]:
    """A late request finds the head that it was made for."""
    shape = rules.shape
    for p in shape.partitions:
        match state[shape.status[f][p]]:
            case Status.IN_FLIGHT:
                yield _apply(rules, state, f, p, Status.APPLIED, "late commit to partition {2} lands", CLIENT)
            case Status.ORPHANED:
                yield _apply(
                    rules, state, f, p, Status.FAILED, "late commit of the dead to partition {2} lands", CLIENT
                )


def _crash(rules: Rules, state: State, broker: int) -> Iterator[Step]:
    """What it had begun is over for its producers. Requests under way may still land, also those that it sent with its
    last breath. It starts again as a new session."""
    shape = rules.shape
    begun = [f for f in shape.flushes_of(broker) if state[shape.phase[f]] in (Phase.STAMPED, Phase.UPLOADED)]
    if not begun:
        return
    for sent in product((False, True), repeat=len(shape.partitions)):
        cells = list(state)
        for f in begun:
            turn = may_commit(rules, state, f)
            for p in shape.partitions:
                status = shape.status[f][p]
                late = turn and sent[p] and state[status] in (Status.TO_COMMIT, Status.UNKNOWN)
                if state[status] == Status.IN_FLIGHT or (late and state[shape.stamp[f]] >= state[shape.fence[p]]):
                    cells[status] = Status.ORPHANED
                elif state[status] not in (Status.NONE, Status.ACKED, Status.ORPHANED):
                    cells[status] = Status.FAILED
        orphaned = [p for p in shape.partitions if any(cells[shape.status[f][p]] == Status.ORPHANED for f in begun)]
        if all(p in orphaned for p in shape.partitions if sent[p]):
            for f in begun:
                settle(shape, cells, f)
            under_way = f", commits to {orphaned} under way" if orphaned else ""
            yield Step("broker {0} crashes" + under_way, (broker,), cells, FAULT)
