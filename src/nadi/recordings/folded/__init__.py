"""Ranks that do the same are kept once."""
