"""Lowering: from a job and a system to the tables and arrays of the engine."""
