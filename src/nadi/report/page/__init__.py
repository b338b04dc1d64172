"""Results as one HTML file that needs no network: sections of figures, and a timeline."""
