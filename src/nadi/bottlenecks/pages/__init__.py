"""Pages of recordings, answers and saved results: ``nadi report``."""
