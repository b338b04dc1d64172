"""What numba compiles, and how it is kept."""
