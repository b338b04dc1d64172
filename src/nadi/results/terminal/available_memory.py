"""How much memory a process may take."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["available_memory"]

_SYSTEM = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")  # of a container
_AVAILABLE = re.compile(r"MemAvailable:\s+(\d+) kB")


def available_memory() -> int:
    """Return the bytes that are free or can be freed, at most those of the container.

    Where the system does not say, the memory that is installed.
    """
    free = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    if (found := _AVAILABLE.search(_text(_SYSTEM))) is not None:
        free.append(int(found[1]) * 1024)
    limit, used = (_text(_GROUP / f"memory.{name}").strip() for name in ("max", "current"))
    if limit.isdecimal() and used.isdecimal():
        free.append(max(int(limit) - int(used), 0))
    return min(free)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
