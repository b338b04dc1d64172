"""Who waits for whom in a recording, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from nadi.bottlenecks.waiting.bottlenecks import Waits, find_waits
from nadi.bottlenecks.waiting.switches import switch_timelines
from nadi.bottlenecks.waiting.wait_for_graph import wait_graph
from nadi.errors import InputError, UsageError
from nadi.files.switches import is_switches, read_switches
from nadi.graph.load_graph import load_graph
from nadi.graph.windows import choose_window, find_steps

if TYPE_CHECKING:
    from nadi.recordings.job_of_files import Reading


def waits(
    *paths: Path | str,
    step: str | int = "all",
    window: str = "",
    switches: Path | str = "",
    progress: Callable[[str], None] = lambda _: None,
    **reading: Unpack[Reading],
) -> Waits:
    """Find who waits for whom: host threads, device streams, ranks, the system's threads.

    Parameters
    ----------
    paths
        Folders or files of a recording, as in :func:`nadi.load_job`; or one file of switches
        alone, of which there are no gains: it cannot be replayed.
    step
        Number of a step, or ``all``.
    window
        A time range instead of a step, such as ``120ms:180ms``; see :func:`choose_window`.
    switches
        A file with the switches of threads during the recording: the text of ``perf sched
        script``, ``perf script`` or ``trace-cmd report``, or a Perfetto trace.
    progress
        Called with a line of text before each longer stage.
    reading
        ``force``, ``capture`` and ``executor``, as in :func:`nadi.load_job`.

    Raises
    ------
    InputError
        If a file cannot be read, or switches are not of the recording's threads and time.
    UsageError
        If the step or time range does not exist, or does not apply.
    """
    if len(paths) == 1 and is_switches(paths[0]):
        if switches or window or str(step) != "all":
            what = "has switches of threads only, and no steps or further switches apply to it"
            raise UsageError(str(paths[0]), what, "give a recording of PyTorch")
        progress(f"reading {paths[0]}")
        return Waits(wait_graph(switch_timelines(read_switches(paths[0]))))
    events = read_switches(switches) if switches else None
    graph = load_graph(paths, progress, **reading)
    chosen = choose_window(graph, find_steps(graph), str(step), window)
    progress("finding waits")
    try:
        return find_waits(graph, chosen, events)
    except InputError as error:
        raise InputError(str(switches), error.what, error.remedy) from None
