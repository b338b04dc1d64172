"""The event graph of a job: built, replayed, walked for its critical path."""
