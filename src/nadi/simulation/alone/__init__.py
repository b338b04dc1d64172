"""One collective by itself."""
