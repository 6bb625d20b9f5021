"""The composition root: settings become components here and nowhere else. One module per kind of process: a
broker does not import Spark."""
