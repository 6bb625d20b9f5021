"""Arrow Flight SQL: the door for ADBC and JDBC clients, over the same queries as `/sql`."""
