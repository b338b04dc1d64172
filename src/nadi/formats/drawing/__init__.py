"""Write traces as graphs: GraphML, Graphviz text, SVG and PDF."""
