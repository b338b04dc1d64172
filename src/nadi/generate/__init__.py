"""Jobs made in code: a builder, and the test cases of Chakra's generator."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
