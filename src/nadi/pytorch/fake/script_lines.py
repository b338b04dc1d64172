"""The line of the user's program that is running."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

_OWN = str(Path(__file__).resolve().parents[2])
_LIBRARIES = (
    _OWN, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    "<frozen", "<string",
)  # fmt: skip


def is_of_library(file: str) -> bool:
    """Return whether a file of code is of Python, of a package, or of Nadi."""
    return file.startswith(_LIBRARIES)


def script_line() -> str:
    """Return file and line of the innermost call that is in no library: ``train.py:12``."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_of_library(file):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "the program"
