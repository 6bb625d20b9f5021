"""`/sql`: questions in SQL, and citations replayed."""
