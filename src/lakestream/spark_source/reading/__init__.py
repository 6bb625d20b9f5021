"""Reads of a topic: table and tail at one cut, cut into tasks, as a batch or as micro-batches."""
