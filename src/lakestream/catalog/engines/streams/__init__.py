"""Tables that engines make as streams: topic, subject and table in one step, and what engines do to them later."""
