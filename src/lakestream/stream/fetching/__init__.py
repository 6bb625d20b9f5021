"""From an offset to record batches: the tail, what is in memory, the view of the table."""
