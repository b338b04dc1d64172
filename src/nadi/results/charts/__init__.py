"""Charts, drawn as SVG and PNG."""
