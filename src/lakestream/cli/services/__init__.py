"""The commands that run one service of a node: broker, HTTP door, pipeline."""
