"""Who communicates with whom, and how much."""
