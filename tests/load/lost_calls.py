"""Calls that end the process that they are made in; a new process imports nothing but this."""

import os
import signal
from contextlib import suppress
from pathlib import Path

__all__ = ["killed", "killed_once"]


def killed_once(number: int, flag: Path) -> int:
    """End the process of the third call, as a lost worker; the next process finds the flag."""
    if number == 3:
        with suppress(FileExistsError):
            flag.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
    return number


def killed(number: int) -> int:
    """End each process of the third call."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number
