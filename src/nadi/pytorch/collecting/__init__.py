"""Record a program as it runs."""
