"""What the ranks of a job are to do: from files and recordings to arrays."""
