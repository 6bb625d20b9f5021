"""Transactions on a shard: the root row, the rows below it, how they are read and changed, leases."""
