"""What brokers decide for clients that work together: groups, transactions, share groups. In domain words, for every
door."""
