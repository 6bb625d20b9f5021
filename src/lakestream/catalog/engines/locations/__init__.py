"""Where tables and views of engines lie: what is allowed, what is claimed, what folders are called."""
