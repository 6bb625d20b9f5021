"""How a broker appends and serves: text and numbers only."""

import msgspec

MIB = 1024 * 1024


class StreamSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`flush_interval_ms` is short where a PUT costs nothing; an object store that charges for it wants 250."""

    flush_interval_ms: int = 4
    flush_bytes: int = 8 * MIB
    flushes_in_flight: int = 2
    upload_deadline_ms: int = 30_000
    max_batch_bytes: int = 8 * MIB
    memory_budget_bytes: int = 256 * MIB
    """Requests in work and what is uploaded of them. The two caches below come on top."""
    tail_cache_bytes: int = 128 * MIB
    history_cache_bytes: int = 128 * MIB
    view_check_ms: int = 500
    generation_check_ms: int = 5_000
    receipt_idle_ms: int = 5_000
