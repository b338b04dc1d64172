"""The main jobs: each joins the stages from files to an answer."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
