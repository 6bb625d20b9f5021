"""From the log to JSON."""
