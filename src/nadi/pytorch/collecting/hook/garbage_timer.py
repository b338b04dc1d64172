"""When Python collects garbage: it pauses the thread that makes one object too many.

No stack shows it, as a collection has no frame: its time would seem to be that of the function in
which it begins. Standard library only, as all of this folder.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from typing import Any

_MOST_COLLECTIONS = 100_000


class GarbageTimer:
    """Notes the collections of all threads while it is on.

    Attributes
    ----------
    collections
        The thread, and the begin and the end of each; ns of the clock.
    """

    def __init__(self) -> None:
        self.collections: list[tuple[int, int, int]] = []
        self._begun = 0  # Python runs one collection at a time

    def start(self) -> None:
        """Begin."""
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """End; nothing if it has not begun."""
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._note)
        self._begun = 0

    def _note(self, phase: str, _: dict[str, Any]) -> None:
        now = time.time_ns()
        if phase == "start":
            self._begun = now
        elif self._begun and len(self.collections) < _MOST_COLLECTIONS:
            self.collections.append((threading.get_native_id(), self._begun, now))
            self._begun = 0
