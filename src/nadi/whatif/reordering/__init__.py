"""Reordering: what may start earlier than the program has it, by the data that it needs."""
