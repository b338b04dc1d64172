"""What is being done, in lines on standard error: where no terminal can show bars.

Quick commands print none. One that takes longer prints a line every ten seconds, and after the
first minute one each minute, so that whoever reads a log sees that it goes on, and how far it is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from nadi.progress import listening
from nadi.units import format_bytes, format_count, printable

__all__ = ["BETWEEN", "ProgressLines", "progress_lines"]

BETWEEN = 10.0
"""Seconds between lines in the first minute."""
_LATER = 60.0


class ProgressLines:
    """How far a command is.

    Parameters
    ----------
    counts
        What stages count, if not bytes.
    """

    def __init__(self, counts: str = "") -> None:
        self._counts = counts
        self._stage = "starting"
        self._amount = 0, 0
        self._compilation = ""
        self._began = time.monotonic()

    def begin(self, text: str) -> None:
        """Begin a stage, of which nothing is done."""
        self._stage, self._amount = text, (0, 0)

    def show(self, done: int, total: int) -> None:
        """Note how much of the stage is done, of how much; 0 if unknown."""
        self._amount = done, total

    def show_compiled(self, text: str) -> None:
        """Note how far the compilation of kernels is; the next line says so."""
        self._compilation = text

    def next_line(self) -> str:
        """Return what is to be said now."""
        seconds = round(time.monotonic() - self._began)
        parts = [f"{self._stage}{self._how_far()}", self._compilation, f"{format_count(seconds)} s"]
        self._compilation = ""
        return f"nadi: {printable('; '.join(filter(None, parts)))}\n"

    def _how_far(self) -> str:
        done, total = self._amount
        if self._counts and total:
            return f", {format_count(done)} of {format_count(total)} {self._counts}"
        if total:  # a size that a file states is too small beyond 4 GiB
            return f", {min(done / total, 1):.0%}"
        return f", {format_bytes(done)}" if done else ""

    def print_until(self, over: Event) -> None:
        """Print a line now and then, until it is over."""
        number = 1
        while not over.wait(BETWEEN if number * BETWEEN <= _LATER else _LATER):
            with suppress(OSError, ValueError):  # nobody reads them any more
                sys.stderr.write(self.next_line())
                sys.stderr.flush()
            number += 1


@contextmanager
def progress_lines(counts: str = "") -> Iterator[ProgressLines]:
    """Print lines meanwhile, as long as it takes; gives what is told how far it is."""
    lines, over = ProgressLines(counts), Event()
    thread = Thread(target=lines.print_until, args=(over,), daemon=True)
    thread.start()
    try:
        with listening(lines.show):
            yield lines
    finally:
        over.set()
        thread.join()
