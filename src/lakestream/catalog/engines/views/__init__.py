"""Views as outside engines use them: text and schema of a query, by name."""
