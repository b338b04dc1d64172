"""Host and device traces of a rank linked to one trace, and ranks to a job."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
