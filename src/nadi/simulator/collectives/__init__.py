"""Collective algorithms: phases, steps and messages, and lower bounds of their time."""
