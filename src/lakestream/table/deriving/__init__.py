"""Tables that are derived from a stream's: what their columns are, which rows they get, and how their files change."""
