"""Which functions and modules call which operations: from calls traced in steps of no times.

A profile function is called at each call of Python, so these steps take longer, but what a function
calls is known exactly. Standard library only, as all of this folder.
"""

from __future__ import annotations

import collections
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

_MOST_CALLS = 10_000  # of one function: what is called oftener calls few operations each time


class TracedCall(NamedTuple):
    """A call of a function; ns of the clock. Of a call of a module, its name in recordings."""

    code: CodeType
    thread: int
    begin: int
    end: int
    module: str = ""


class CallTracer:
    """Notes the calls of functions on the thread that starts it, until that stops it."""

    def __init__(
        self, is_traced: Callable[[CodeType], bool], of_modules: CodeType | None = None
    ) -> None:
        self._is_traced = is_traced
        self._of_modules = of_modules  # the function that calls a module
        self._modules: dict[int, tuple[Any, str]] = {}  # by identity, with their names
        self._classes: collections.Counter[str] = collections.Counter()
        self._calls: list[TracedCall] = []
        self._left: dict[CodeType, int] = {}  # calls that may still be noted
        self._open: list[tuple[FrameType, int, str]] = []
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
                    is_traced = code is self._of_modules or self._is_traced(code)
                    left = self._left[code] = _MOST_CALLS if is_traced else 0
                if left:
                    self._left[code] = left - 1
                    name = self._module(frame) if code is self._of_modules else ""
                    self._open.append((frame, time.time_ns(), name))
            elif event == "return" and self._open and self._open[-1][0] is frame:
                _, begin, name = self._open.pop()
                ended = TracedCall(frame.f_code, self._thread, begin, time.time_ns(), name)
                self._calls.append(ended)
        except Exception:  # it would end the program
            sys.setprofile(None)

    def _module(self, frame: FrameType) -> str:
        """Name the module that is called as PyTorch does: its class, and which of that it is."""
        module = frame.f_locals[frame.f_code.co_varnames[0]]
        if id(module) not in self._modules:
            kind = type(module).__name__
            self._modules[id(module)] = module, f"nn.Module: {kind}_{self._classes[kind]}"
            self._classes[kind] += 1
        return self._modules[id(module)][1]
