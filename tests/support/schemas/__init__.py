"""Schemas and their values for tests."""
