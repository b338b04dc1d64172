"""What is being done, on standard error: a moving line in a terminal, else only long waits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["show_progress"]


@contextmanager
def show_progress() -> Iterator[Callable[[str], None]]:
    """Give a function that shows a line of text until the next one, or the end."""
    if not sys.stderr.isatty():
        _announce_compilation(lambda text: print(f"nadi: {text}", file=sys.stderr))
        yield lambda _: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("starting") as status:
        _announce_compilation(lambda text: console.print(text, style="dim"))
        yield lambda text: status.update(text)


def _announce_compilation(say: Callable[[str], None]) -> None:
    from nadi.kernels._jit import cache_folder, compiled_before

    if not compiled_before():
        kept = "" if cache_folder() else "; no folder is writable to keep them, so every time"
        say(f"compiling kernels for this machine, a few seconds{kept or ', only this once'}")
