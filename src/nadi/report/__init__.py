"""Reports: each computes plain data from a result, then renders it."""
