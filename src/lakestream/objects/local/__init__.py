"""Objects as files below a directory: durable puts, folders that survive a power cut, reads shared by threads."""
