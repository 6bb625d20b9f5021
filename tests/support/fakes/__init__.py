"""What stands in for a part of the engine, and the event loops that it runs on."""
