"""Topics, records and groups over HTTP, as Confluent's REST clients call them, and what those lack."""
