"""Which functions of the program call which operations: from calls traced in steps of no times.

A profile function is called at each call of Python, so these steps take longer, but what a function
calls is known exactly. Standard library only, as all of this folder.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

_MOST_CALLS = 10_000  # of one function: what is called oftener calls few operations each time


class TracedCall(NamedTuple):
    """A call of a function; ns of the clock."""

    code: CodeType
    thread: int
    begin: int
    end: int


class CallTracer:
    """Notes the calls of functions on the thread that starts it, until that stops it."""

    def __init__(self, is_traced: Callable[[CodeType], bool]) -> None:
        self._is_traced = is_traced
        self._calls: list[TracedCall] = []
        self._left: dict[CodeType, int] = {}  # calls that may still be noted
        self._open: list[tuple[FrameType, int]] = []
        self._thread = 0  # while it is on

    @property
    def calls(self) -> list[TracedCall]:
        """The calls that have ended: those made by a call before it."""
        return [one for one in self._calls if self._left[one.code]]

    def start(self) -> None:
        """Begin, unless the program traces its calls itself."""
        if sys.getprofile() is None:
            self._thread = threading.get_native_id()
            sys.setprofile(self._take)

    def stop(self) -> None:
        """End; nothing if it has not begun."""
        if self._thread:
            if sys.getprofile() == self._take:
                sys.setprofile(None)
            self._thread = 0
            self._open.clear()

    def _take(self, frame: FrameType, event: str, _: Any) -> None:
        try:
            if not self._thread:  # another thread has stopped it
                sys.setprofile(None)
            elif event == "call":
                code = frame.f_code
                left = self._left.get(code)
                if left is None:
                    left = self._left[code] = _MOST_CALLS if self._is_traced(code) else 0
                if left:
                    self._left[code] = left - 1
                    self._open.append((frame, time.time_ns()))
            elif event == "return" and self._open and self._open[-1][0] is frame:
                _, begin = self._open.pop()
                self._calls.append(TracedCall(frame.f_code, self._thread, begin, time.time_ns()))
        except Exception:  # it would end the program
            sys.setprofile(None)
