"""The composition root: settings become components here and nowhere else. One module per kind of process, so that a
broker does not import Spark and the pipeline does not import the Kafka door."""
