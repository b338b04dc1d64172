"""What came of a simulation: accounts, links, and the job as if it were recorded."""
