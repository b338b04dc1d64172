"""A recorded job on more ranks."""
