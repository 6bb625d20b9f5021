"""DescribeGroups, v0–v6.

State and members of groups that are coordinated here. A group that nobody ever used, or whose members speak the newer
protocol, is reported as Dead, from v6 on with GROUP_ID_NOT_FOUND. What the caller may do with a group (v3 on) is told
on request.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from lakestream.coordination.groups import Group, State
from lakestream.errors import LakestreamError
from lakestream.kafka.apis.api import Context, Reply, api
from lakestream.kafka.apis.authorized import group_operations
from lakestream.kafka.errors import coordinator_code
from lakestream.kafka.wire.describing import UNASKED
from lakestream.kafka.wire.writing import Fields


async def handle(context: Context, request: Any) -> Reply:
    says_operations = getattr(request, "include_authorized_operations", False)
    return {"groups": [await _described(context, group, says_operations) for group in request.groups]}


async def _described(context: Context, group: str, says_operations: bool) -> Fields:
    try:
        machine = await context.groups.describe(context.principal, group)
    except LakestreamError as error:
        return _nothing(group, coordinator_code(error), str(error))
    if not isinstance(machine, Group):
        code = ErrorCode.group_id_not_found if context.version >= 6 else ErrorCode.none
        tells = says_operations and code is ErrorCode.none
        operations = group_operations(context, group) if tells else UNASKED
        message = f"there is no group {group}" if machine is None else f"group {group} is no classic group"
        return {**_nothing(group, code, message), "authorized_operations": operations}
    return {
        "group_id": group,
        "group_state": machine.state.value,
        "protocol_type": machine.protocol_type,
        "protocol_data": (machine.protocol or "") if machine.state is State.STABLE else "",
        "members": _members(machine),
        "authorized_operations": group_operations(context, group) if says_operations else UNASKED,
    }


def _members(machine: Group) -> list[Fields]:
    return [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": f"/{member.client_host}",
            "member_metadata": member.metadata(machine.protocol or ""),
            "member_assignment": member.assignment,
        }
        for member in machine.members.values()
    ]


def _nothing(group: str, code: ErrorCode, message: str) -> Fields:
    return {
        "group_id": group,
        "error_code": code,
        "error_message": message,
        "group_state": "Dead" if code in (ErrorCode.none, ErrorCode.group_id_not_found) else "",
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }


API = api(15, handle, versions=(0, 6))
