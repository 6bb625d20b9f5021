"""The tables of streams in a catalog that somebody else runs, through PyIceberg."""
