"""The commands that run a whole node or cluster on this machine, and the processes that belong to it."""
