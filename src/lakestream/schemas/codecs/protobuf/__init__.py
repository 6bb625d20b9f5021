"""Values in Protobuf's binary form."""
