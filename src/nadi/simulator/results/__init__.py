"""Results of a simulation: accounts per rank, collective and link, and the job as a recording."""
