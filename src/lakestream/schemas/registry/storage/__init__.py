"""How the registry is stored: its rows, a change of them, and what the bucket keeps for a lost metadata store."""
