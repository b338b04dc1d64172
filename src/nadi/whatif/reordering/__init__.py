"""Reordering: find operations that can start earlier without breaking data dependencies."""
