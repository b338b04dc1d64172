"""Write timelines for trace viewers, in Chrome's trace event format and in Perfetto's."""
