"""A schema registry of the user's own, instead of ours."""
