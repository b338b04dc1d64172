"""What is being done, on standard error: bars in a terminal, else lines of what takes long.

What is being done, in lines on standard error: where no terminal can show bars.

Quick commands print none. One that takes longer prints a line every ten seconds, and after the
first minute one each minute, so that whoever reads a log sees that it goes on, and how far it is.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from nadi.progress import listening
from nadi.units import format_bytes, format_count, printable


@contextmanager
def show_progress(
    *, announce: bool, use: str = "", counts: str = ""
) -> Iterator[Callable[[str], None]]:
    """Give a function that begins a stage, which is shown until the next one, or the end.

    - ``announce``: Whether to say at once if kernels must first be compiled, also outside of a
      terminal.
    - ``use``: The command, by its name in the list of known kernels: those that it needs, and that
      were never compiled, are compiled by a second process as well.
    - ``counts``: What stages count, if not bytes.
    """
    if sys.stderr.isatty():
        with _bars(counts) as (begin, show_compiled), _compiling(use, show_compiled):
            yield begin
        return

    with progress_lines(counts) as lines:

        def say(done: int, total: int) -> None:
            text = _compilation(done, total)
            if announce and done == 0:
                sys.stderr.write(f"nadi: {text}\n")
            else:
                lines.show_compiled(text)

        with _compiling(use, say):
            yield lines.begin


@contextmanager
def _bars(counts: str) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """Show a bar for the stage, and one while kernels are compiled; gives what moves each."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        SpinnerColumn,
        Task,
        TaskID,
        TextColumn,
    )
    from rich.text import Text

    from nadi.progress import listening
    from nadi.results.text import PrintableConsole

    class Bytes(DownloadColumn):
        """How much is read or written, of stages that do so."""

        def render(self, task: Task) -> Text:
            if task.fields.get("counts_kernels") or not (task.total or task.completed):
                return Text("")  # a stage that reads and writes nothing
            if counts:
                whole = f" of {task.total:,.0f}" if task.total else ""
                return Text(f"{task.completed:,.0f}{whole} {counts}")
            return super().render(task)

    console = PrintableConsole(stderr=True)
    turning = SpinnerColumn("dots" if console.encoding.startswith("utf") else "line")
    columns = (turning, TextColumn("{task.description}", markup=False), BarColumn(), Bytes())
    with Progress(*columns, console=console, transient=True) as bars:
        stage = [bars.add_task("starting", total=None)]
        compiled: list[TaskID] = []

        def show(done: int, total: int) -> None:
            # a size that a file states is too small beyond 4 GiB
            bars.update(stage[0], completed=done, total=max(done, total) if total else None)

        def begin(text: str) -> None:
            # a bar that is reset keeps the total of the stage before
            bars.remove_task(stage[0])
            stage[0] = bars.add_task(text, total=None)

        def show_compiled(done: int, total: int) -> None:
            if not compiled:
                compiled.append(bars.add_task("", counts_kernels=True))
            text = _compilation(done, total)
            bars.update(compiled[0], completed=done, total=total, description=text)

        with listening(show):
            yield begin, show_compiled


def _compilation(done: int, total: int) -> str:
    from nadi.kernels.kernel_cache import cache_folder

    how_often = "once" if cache_folder() else "every time, as no folder can keep them"
    return f"compiling kernels, {how_often}: {done} of {total}"


@contextmanager
def _compiling(use: str, show: Callable[[int, int], None]) -> Iterator[None]:
    """Call ``show`` with how many kernels are compiled of how many, while any are."""
    from nadi.kernels.compile_ahead import compiling_ahead, missing_kernels
    from nadi.kernels.jit import watching

    missing = missing_kernels(use)
    done: list[str] = []

    def is_done(name: str) -> None:
        done.append(name)
        show(len(done), max(len(missing), len(done)))

    def watch(name: str, is_over: bool) -> None:
        if is_over:
            is_done(name)
        else:
            show(len(done), max(len(missing), len(done) + 1))

    with watching(watch), compiling_ahead(missing, is_done):
        yield


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
        self._began = self._stage_began = time.monotonic()

    def begin(self, text: str) -> None:
        """Begin a stage, of which nothing is done."""
        self._stage, self._amount = text, (0, 0)
        self._stage_began = time.monotonic()

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
            how_far = f", {format_count(done)} of {format_count(total)} {self._counts}"
            each = (time.monotonic() - self._stage_began) / done if done else 0.0
            left = round(each * (total - done))
            return how_far + (f", about {format_count(left)} s left of this" if left else "")
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
