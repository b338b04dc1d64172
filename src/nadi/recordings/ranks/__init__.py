"""The ranks of one job: one clock, and collectives that belong together."""
