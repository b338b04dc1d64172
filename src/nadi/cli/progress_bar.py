"""What is being done, on standard error: a bar in a terminal, else only long waits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["show_progress"]


@contextmanager
def show_progress(*, announce: bool) -> Iterator[Callable[[str], None]]:
    """Give a function that begins a stage, which is shown until the next one, or the end.

    Parameters
    ----------
    announce
        Whether to say so also outside of a terminal if kernels must first be compiled.
    """
    if not sys.stderr.isatty():
        if announce and (notice := _compilation_notice()):
            sys.stderr.write(f"nadi: {notice}\n")
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

    from nadi.progress import listening

    console = Console(stderr=True)
    if notice := _compilation_notice():
        console.print(notice, style="dim")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("starting", total=None)

        def show(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total or None)

        def begin(text: str) -> None:
            bars.reset(task, description=text, total=None)

        with listening(show):
            yield begin


def _compilation_notice() -> str:
    from nadi.kernels.jit import cache_folder, compiled_before

    if compiled_before():
        return ""
    how_often = "only this once" if cache_folder() else "every time, as no folder can keep them"
    return f"compiling kernels for this machine: some ten seconds, {how_often}"
