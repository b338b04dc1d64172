"""How much memory a replay may take, and no more."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nadi.files.files import available_memory

_STATUS = Path("/proc/self/status")
_DATA = re.compile(r"VmData:\s+(\d+) kB")


def free_bytes(device: str) -> int:
    """Return how much memory is free where tensors are."""
    if device == "cuda":
        torch: Any = importlib.import_module("torch")
        return int(torch.cuda.mem_get_info()[0])
    return available_memory()


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Let this process allocate what is free and no more: then an operator fails by itself.

    Else Linux gives memory that is not there, and ends the process that uses it, or another one.
    Other systems have no such limit.
    """
    found = _DATA.search(_STATUS.read_text()) if _STATUS.exists() else None
    if found is None:
        yield
        return
    resource: Any = importlib.import_module("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(found[1]) * 1024 + available_memory()
    known = [one for one in (limit, soft, hard) if one != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
