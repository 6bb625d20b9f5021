"""Snapshots, manifests and manifest lists: built, indexed, merged, expired."""
