"""How far a long read or write is, told to whoever listens; nobody does in a library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["listening", "tell"]

_Listener = Callable[[int, int], None]
_listener: ContextVar[_Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: _Listener) -> Iterator[None]:
    """Call ``listener`` with bytes done and bytes in all (0: not known) meanwhile."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(done: int, total: int = 0) -> None:
    """Tell how many bytes of how many are done."""
    listener = _listener.get()
    if listener is not None:
        listener(done, total)
