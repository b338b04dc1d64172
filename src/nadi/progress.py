"""Report the progress of a long read or write to a listener; without one, do nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_Listener = Callable[[int, int], None]
_listener: ContextVar[_Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: _Listener) -> Iterator[None]:
    """In this context, call ``listener`` with bytes done and total bytes (0 if unknown)."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(done: int, total: int = 0) -> None:
    """Report to the listener how many of ``total`` bytes are done."""
    listener = _listener.get()
    if listener is not None:
        listener(done, total)
