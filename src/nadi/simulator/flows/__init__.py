"""Transfers that share links: max-min fair rates, and when each transfer ends."""
