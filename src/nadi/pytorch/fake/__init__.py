"""Record a job of many ranks in one process without a device."""
