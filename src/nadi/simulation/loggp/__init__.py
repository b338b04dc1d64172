"""The LogGP model of messages."""
