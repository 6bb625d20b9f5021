"""Questions about tables and tails, in SQL: what they see, where they run, and citations of their answers."""
