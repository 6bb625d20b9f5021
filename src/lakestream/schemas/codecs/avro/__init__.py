"""Values in Avro's binary form."""
