"""Which operations of a host and a device trace are the same."""
