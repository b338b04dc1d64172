"""Systems that others describe."""
