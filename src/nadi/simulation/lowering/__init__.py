"""From a job and a system to the arrays of the engine."""
