"""Records below the frontier, read back from whatever files the table has, in offset order."""
