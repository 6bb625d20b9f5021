"""Version 3 of the API: clusters and what is in them."""
