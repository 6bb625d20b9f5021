"""An explicit-state model of the log protocol: append, frontier and collect, explored to the end.

docs/MODEL.md explains it. `python -m tests.model` runs it.
"""
