"""Tables, files and logs as we, former versions and other engines leave them."""
