"""What every stage works on: Trace, Job and Schedule, and the tables that they are made of."""
