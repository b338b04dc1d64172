"""Analyses of recordings as they are, without replay: one file each, each a table."""
