"""Ranks alike kept once."""
