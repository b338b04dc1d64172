"""Jobs whose names, sizes and structure are hidden."""
