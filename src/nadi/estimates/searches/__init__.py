"""The best plans of many."""
