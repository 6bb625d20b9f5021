"""The schema registry: subjects with versions, ids that are never reused, compatibility between them."""
