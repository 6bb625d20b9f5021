"""Derived tables in the embedded catalog: load a view, commit against it, put away."""
