"""Memory tiers: where tensors live, and what a step costs with them there."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
