"""Run the operators of a trace again."""
