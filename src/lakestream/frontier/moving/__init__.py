"""From the WAL into the table: what is due, cut into tiles, written, committed, and taken out of the log."""
