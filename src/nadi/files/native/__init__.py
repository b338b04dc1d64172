"""Nadi's own file: the tables of a trace in Arrow."""
