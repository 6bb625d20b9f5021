"""Servers of other makers, each a process of its own on loopback, and the catalogs that they are."""
