"""Those who talk to us: Kafka clients and bytes on the wire, and engines that commit to tables."""
