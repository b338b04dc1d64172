"""The critical path as HolisticTraceAnalysis finds it."""
