"""From a batch that a door has taken to its ack: checked, buffered, uploaded, committed."""
