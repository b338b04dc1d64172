"""One plan on one system."""
