"""A share group as rows, and back: how another coordinator goes on with it. Sessions begin anew there."""

from typing import Final

from lakestream.coordination.groups.consumer.keeping import member_of, row_of
from lakestream.coordination.groups.share.group import ASSIGNOR, SHARES, ShareGroup, ShareGroupState
from lakestream.coordination.settings import GroupSettings
from lakestream.metadata.groups import GroupState, Phase, StoredGroup

_PHASES: Final[dict[ShareGroupState, Phase]] = {ShareGroupState.EMPTY: "EMPTY", ShareGroupState.STABLE: "STABLE"}


def stored_shares(group: ShareGroup, before: GroupState, wall_ms: int) -> StoredGroup:
    phase = _PHASES[group.state]
    same = (phase, group.epoch, "share") == (before.phase, before.generation, before.kind)
    changed_ms = before.changed_ms if same else wall_ms
    state = GroupState(
        group.epoch, SHARES, phase, ASSIGNOR, "", changed_ms, "share", group.assignment_epoch, group.digest
    )
    return StoredGroup(state, (), [row_of(member) for member in group.members.values()])


def share_group(kept: StoredGroup, settings: GroupSettings, now_ms: float) -> ShareGroup:
    state = kept.state
    group = ShareGroup(settings, state.generation, state.assignment_epoch, state.digest)
    for row in kept.consumers:
        member = member_of(row)
        group.admit(member)
        group.touch(member, now_ms)
    group.unsaved = False
    return group
