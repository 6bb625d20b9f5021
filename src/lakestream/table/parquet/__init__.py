"""Parquet files: written, sealed with checksums, their footers judged, their row groups fetched."""
