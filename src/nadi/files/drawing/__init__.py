"""Write the graph of a trace for viewers of graphs."""
