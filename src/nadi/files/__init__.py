"""Read and write every format: one file each, and one line in the registry."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
