"""Consumer groups on a stage: clock, troubles and members as a test wants them."""
