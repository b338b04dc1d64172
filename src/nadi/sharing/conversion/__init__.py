"""Files of one format in another."""
