"""The compiled event engine of the simulator: nodes, messages and collectives over time."""
