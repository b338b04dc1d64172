"""Timelines for trace viewers: Chrome's trace event format and Perfetto's. Writing."""
