"""Tables and views as outside engines use them: by name, with their own schemas and commits."""
