"""Which rank makes a job hang, from the dumps of flight recorders."""
