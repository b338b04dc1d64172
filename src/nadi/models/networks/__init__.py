"""Networks that a file describes layer by layer."""
