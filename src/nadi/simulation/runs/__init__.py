"""Whole jobs on a system: ``nadi simulate``."""
