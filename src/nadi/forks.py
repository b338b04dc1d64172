"""Refusing to work in a fork of a process in which Nadi has worked.

polars works in threads, and a forked process has none of its parent's: the first table waits for
them for ever. Processes that are spawned begin anew and are fine.
"""

import os

from nadi.errors import UsageError

_first: list[int] = []  # the process in which Nadi was first asked for something


def refuse_in_fork() -> None:
    """Raise UsageError in a process that was forked after Nadi had worked in its parent."""
    process = os.getpid()
    if not _first:
        _first.append(process)
    elif process != _first[0]:
        raise UsageError(
            "", "this process is a fork of one in which Nadi has worked, and lacks its threads",
            'start workers with multiprocessing.get_context("spawn") or "forkserver"',
        )  # fmt: skip
