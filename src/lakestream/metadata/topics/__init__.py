"""The topic list, topics' settings, and which table a topic is."""
