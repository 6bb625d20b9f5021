"""The process in which a query runs: what it may ask, what it reads, and its answer in bytes."""
