"""Analyses of where the time of a job goes, one per file, and critical paths by HTA's rules."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
