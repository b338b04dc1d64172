"""The event loop, compiled."""
