"""Values in JSON, and the templates of their texts."""
