"""What one broker at a time decides, under a lease per key: consumer groups. In domain words, for every door."""
