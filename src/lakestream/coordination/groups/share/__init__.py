"""Share groups (KIP-932): members share partitions, and are given records one by one instead of partitions."""
