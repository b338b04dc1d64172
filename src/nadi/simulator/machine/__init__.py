"""Systems as values, and the files that describe them."""
