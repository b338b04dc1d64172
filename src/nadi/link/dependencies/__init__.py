"""Which operation of a rank waits for which: threads, launches, streams, synchronization, data."""
