"""The critical path of a step, and the paths that are nearly as long."""
