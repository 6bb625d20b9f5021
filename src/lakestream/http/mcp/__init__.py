"""`/mcp`: streams for agents, over the Model Context Protocol."""
