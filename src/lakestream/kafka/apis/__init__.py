"""One file per Kafka API that is served, and what handlers share."""
