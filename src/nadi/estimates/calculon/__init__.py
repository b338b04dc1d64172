"""Calculon's own rules for a step, for comparison with it."""
