"""Jobs that can be shared: what simulators need stays, names, shapes and structure go."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
