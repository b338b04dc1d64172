"""Nodes of a trace in the order in which they can run."""
