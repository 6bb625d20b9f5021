"""The bucket as a whole: whose it is, where it is, what it takes to move it or to rebuild its metadata store."""
