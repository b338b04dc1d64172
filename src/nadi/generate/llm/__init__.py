"""Language models as values, and the order in which pipeline stages work."""
