"""The deterministic simulator: real protocol code on a seeded loop, simulated backends, faults and auditors."""
