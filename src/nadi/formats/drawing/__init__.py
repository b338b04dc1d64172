"""Traces drawn as graphs: GraphML, Graphviz text, SVG and PDF. Writing."""
