"""The store of a cluster on Oxia: one namespace of an Oxia server, shared by processes on any machine.

Oxia compares and sets one key at a time, and a batch of its writes is not atomic. So each of our shards has one
root row (`shards/root.py`), and a transaction is one write of it that carries all its puts and deletes. `store.py` is
the entrance.
"""
