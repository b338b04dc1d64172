"""Changes of an event graph: which operations, and how."""

from typing import Any

from lazy_loader import attach_stub

from nadi.old_names import moved

_declared, __dir__, __all__ = attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Return what is declared, or what stood here in version 0.3."""
    return moved(__name__, name) if name in ("OnSystem", "Prices", "prices_on") else _declared(name)
