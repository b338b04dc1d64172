"""Two recordings of one job, and predictions against recordings."""
