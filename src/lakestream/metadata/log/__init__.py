"""One partition's log on the store: head, extents and producers, and how a flush is decided and committed."""
