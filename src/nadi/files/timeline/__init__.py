"""Write timelines for Perfetto and chrome://tracing."""
