"""A generator of jobs from stated conditions, learned from jobs whose conditions are known."""
