"""What a model would take on a machine, without a trace: times, memory, the best configuration."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
