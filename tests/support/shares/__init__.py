"""Share groups: members on a stage, and Kafka's own share consumer."""
