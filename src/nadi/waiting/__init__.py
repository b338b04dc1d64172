"""Who waits for whom: the wait-for graph of threads, streams, ranks and the system's threads."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
