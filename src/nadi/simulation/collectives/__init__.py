"""The algorithms of collectives."""
