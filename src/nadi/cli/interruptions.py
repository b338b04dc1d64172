"""Ctrl-C for a process that is busy in compiled code, where Python does not look for signals.

Kernels let other threads run. So a thread waits for the signal, and ends the process if the main
thread has not come to it within a second; what is half written is removed before.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
_LONGEST = 1.0  # seconds until the main thread has to have come to the signal
_came = threading.Condition()
_handled = [0]


def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt: the handler of a process that is watched."""
    with _came:
        _handled[0] += 1
        _came.notify_all()
    raise KeyboardInterrupt


def watch_for_interruptions() -> None:
    """Begin to wait for Ctrl-C in a thread; only the main thread may call it, and once."""
    sys.unraisablehook = _end_or_report
    if sys.platform == "win32":  # which wakes no file but a socket
        return
    heard, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    threading.Thread(target=_wait, args=(heard,), daemon=True, name="nadi-interruptions").start()


def _is_handled(number: int) -> bool:
    """Wait until the main thread has come to so many interruptions; False if it does not."""
    with _came:
        return _came.wait_for(lambda: _handled[0] >= number, _LONGEST)


def _wait(heard: int) -> None:
    met = 0
    while byte := os.read(heard, 1):
        if byte[0] != signal.SIGINT or signal.getsignal(signal.SIGINT) is not interrupt:
            continue
        met += 1
        if _is_handled(met):
            continue
        _end()


def _end_or_report(met: sys.UnraisableHookArgs) -> None:
    """End for an interruption that came into a callback, out of which nothing can be raised."""
    if issubclass(met.exc_type, KeyboardInterrupt):
        _end()
    sys.__unraisablehook__(met)


def _end() -> NoReturn:
    files = sys.modules.get("nadi.files.files")
    remove_unfinished = getattr(files, "remove_unfinished", None)  # else nothing is being written
    if remove_unfinished:
        remove_unfinished()
    os.write(2, b"nadi: interrupted\n")
    os._exit(INTERRUPTED)
