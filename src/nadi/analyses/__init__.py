"""Tables of a recording as it is: ``nadi analyze``, and what HolisticTraceAnalysis gives."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
