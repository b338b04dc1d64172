"""The page of ``nadi report``."""
