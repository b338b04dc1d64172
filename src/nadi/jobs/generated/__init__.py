"""Jobs of models that ship or that a file describes."""
