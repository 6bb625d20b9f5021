"""Rows of files into other files: merged, folded, moved, checked."""
