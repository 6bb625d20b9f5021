"""The newer protocol (KIP-848): members tell what they want with their heartbeats, the coordinator assigns, and each
member is brought to its share on its own."""
