"""What every stage works on: traces, jobs and schedules, and the tables that they are made of."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
