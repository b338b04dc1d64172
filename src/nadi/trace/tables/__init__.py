"""The columns of every table."""
