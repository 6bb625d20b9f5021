"""What processes share: metadata store, bucket, disk stores, and the tables in them."""
