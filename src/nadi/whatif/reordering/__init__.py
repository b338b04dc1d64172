"""Moves of operations that keep what depends on them."""
