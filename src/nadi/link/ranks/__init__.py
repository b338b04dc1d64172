"""What ranks have in common: collectives, messages, clocks."""
