"""The vertices and edges of the event graph."""
