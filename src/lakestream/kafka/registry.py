"""Every API that is served. A new handler file needs one line here."""

from lakestream.kafka import (
    p00_produce,
    p01_fetch,
    p02_list_offsets,
    p03_metadata,
    p08_offset_commit,
    p09_offset_fetch,
    p10_find_coordinator,
    p11_join_group,
    p12_heartbeat,
    p13_leave_group,
    p14_sync_group,
    p15_describe_groups,
    p16_list_groups,
    p18_api_versions,
    p19_create_topics,
    p20_delete_topics,
    p22_init_producer_id,
    p23_offset_for_leader_epoch,
    p32_describe_configs,
    p60_describe_cluster,
)
from lakestream.kafka.api import Api

_HANDLERS = (
    p00_produce,
    p01_fetch,
    p02_list_offsets,
    p03_metadata,
    p08_offset_commit,
    p09_offset_fetch,
    p10_find_coordinator,
    p11_join_group,
    p12_heartbeat,
    p13_leave_group,
    p14_sync_group,
    p15_describe_groups,
    p16_list_groups,
    p18_api_versions,
    p19_create_topics,
    p20_delete_topics,
    p22_init_producer_id,
    p23_offset_for_leader_epoch,
    p32_describe_configs,
    p60_describe_cluster,
)

APIS: dict[int, Api] = {handler.API.key: handler.API for handler in _HANDLERS}
