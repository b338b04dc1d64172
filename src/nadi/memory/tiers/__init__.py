"""A plan with a second tier, without a trace."""
