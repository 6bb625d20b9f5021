# mypy: ignore-errors
"""Compiled: text in JSON to columns and back."""
