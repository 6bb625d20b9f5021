"""The command line: one file per noun. Client commands are ordinary Kafka, HTTP and Iceberg clients."""

from lakestream.cli.main import main

__all__ = ["main"]
