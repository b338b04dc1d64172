"""Which recorded operation is which."""
