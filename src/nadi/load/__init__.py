"""Finding and opening files for the stages: the traces of a job, and descriptions of systems."""
