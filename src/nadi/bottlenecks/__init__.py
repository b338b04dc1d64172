"""What bounds a step, who waits for whom, what a change gains, what differs."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
