"""A part of a job that runs by itself."""
