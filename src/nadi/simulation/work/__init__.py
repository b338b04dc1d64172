"""What a simulation takes from a job."""
