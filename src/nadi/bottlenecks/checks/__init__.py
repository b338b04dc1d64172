"""Whether a recording keeps its budgets against a baseline."""
