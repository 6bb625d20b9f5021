"""Oxia's messages: `oxia_pb2` is generated from oxia.proto and never edited."""
