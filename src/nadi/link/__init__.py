"""Link the host and device traces of a rank to one trace, and the ranks to a job."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
