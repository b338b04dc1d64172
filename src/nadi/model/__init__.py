"""The data model of all stages: traces, jobs and schedules, and their tables."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
