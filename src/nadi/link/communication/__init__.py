"""Communication of one rank: its calls, their process groups, their order."""
