"""Whether what a heartbeat says fits together, and where its member stands. Pure."""

from lakestream.coordination.groups.consumer.members import ConsumerMember, is_within
from lakestream.coordination.groups.consumer.model import JOINS, LEAVES_FOR_A_WHILE, Beat


def is_epoch_good(member: ConsumerMember, beat: Beat) -> bool:
    """An earlier epoch is good if it is the last one and the answer that told of this one was lost; who begins again is
    told all."""
    if beat.epoch in (JOINS, member.epoch):
        return True
    return beat.epoch == member.previous_epoch and is_within(beat.owned, member.assigned)


def problem_of(beat: Beat) -> str:
    """Empty: there is none."""
    if beat.instance_id == "":
        return "an instance id is not empty"
    if beat.rack_id == "":
        return "a rack id is not empty"
    if beat.epoch < LEAVES_FOR_A_WHILE:
        return f"{beat.epoch} is no epoch"
    if not beat.member_id:
        return "a member has an id"
    if beat.epoch == LEAVES_FOR_A_WHILE and beat.instance_id is None:
        return "only a static member leaves for a while"
    if beat.epoch == JOINS:
        if beat.rebalance_timeout_ms is None:
            return "who joins says how long a rebalance may take"
        if beat.owned is None or beat.owned:
            return "who joins has no partitions"
        if not beat.topics and not beat.pattern:
            return "who joins subscribes to topics"
    return ""
