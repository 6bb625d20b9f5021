"""What nothing names any more goes away: WAL objects, table files, rows of producers."""
