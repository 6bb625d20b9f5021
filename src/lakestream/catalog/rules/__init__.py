"""What a commit to a stream's table must keep, whoever makes it."""
