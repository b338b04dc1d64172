"""Models of jobs, and jobs drawn from them."""
