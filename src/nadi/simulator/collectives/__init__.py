"""How collectives are done: their phases, steps and messages, and the least time they take."""
