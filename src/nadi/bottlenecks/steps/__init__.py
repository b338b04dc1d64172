"""What bounds the steps of a recording: ``nadi run``."""
