"""Match the operations of a host trace with those of a device trace."""
