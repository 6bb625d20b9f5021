"""The classic protocol: members join, a leader assigns, everybody hears of it."""
