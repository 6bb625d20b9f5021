"""The backends of the store. Each passes `tests/contract`; `factory.open` picks one by its URL."""
