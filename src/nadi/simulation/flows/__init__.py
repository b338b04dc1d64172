"""Transfers that share links."""
