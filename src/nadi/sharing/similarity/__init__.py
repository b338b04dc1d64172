"""How alike two jobs are."""
