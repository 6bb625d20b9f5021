"""One value at a time, between JSON and the bytes of its schema: for doors that are told values as JSON."""
