"""A small client of Oxia's gRPC service: addresses, connections, calls, batches."""
