"""From JSON to records in the log."""
