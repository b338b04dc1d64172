"""Read and write Chakra execution traces."""
