"""Commands that are ordinary Kafka clients: topics, records, groups."""
