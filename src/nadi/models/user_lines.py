"""The line of the user's code that made something, for errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from nadi.errors import UsageError

_OWN = str(Path(__file__).parent)


class UserLine(NamedTuple):
    """A line of a program."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.number}"


def user_line() -> UserLine:
    """Return the line that called into this package, from however deep inside."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_OWN) and frame.f_back is not None:
        frame = frame.f_back
    return UserLine(frame.f_code.co_filename, frame.f_lineno)


def refusal(what: str, remedy: str, line: UserLine | None = None) -> UsageError:
    """Return the error about a line of the user's code; by default the one that runs now."""
    return UsageError(str(line or user_line()), what, remedy)
