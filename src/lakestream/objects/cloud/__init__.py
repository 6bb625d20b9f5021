"""Objects in S3, GCS and Azure through obstore, and what its failures mean."""
