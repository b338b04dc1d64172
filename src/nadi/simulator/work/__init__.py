"""The work of the ranks of a job: from files and recordings to arrays."""
