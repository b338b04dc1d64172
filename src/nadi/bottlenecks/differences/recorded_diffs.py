"""Two recordings compared, from files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nadi.bottlenecks.differences.compared_runs import ComparedRuns, RunSide, compare_runs
from nadi.bottlenecks.steps.run import Run
from nadi.graph.critical_paths import walk_critical_path
from nadi.graph.load_graph import load_graph
from nadi.graph.replay import replay_graph
from nadi.graph.windows import Window, choose_window, find_steps

__all__ = ["diff", "diff_runs"]

_Places = Path | str | Sequence[Path | str]


def diff(
    before: _Places,
    after: _Places,
    *,
    step: str | int = "all",
    force: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> ComparedRuns:
    """Compare two recordings of a program: what got slower, and what of it lengthens the step.

    Parameters
    ----------
    before, after
        A folder or file of each, or several, as for :func:`nadi.run`.
    step
        Number of a step of both, or ``all``: then times are means over the steps of each.
    force
        As for :func:`nadi.load_job`.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError
        If files cannot be read.
    UsageError
        If a recording has no such step.
    """
    return compare_runs(*(_side(places, str(step), force, progress) for places in (before, after)))


def diff_runs(before: Run, after: Run) -> ComparedRuns:
    """Compare two recordings that are analysed already, each in the window of its analysis."""
    return compare_runs(*(
        RunSide(run.graph, run.window, run.path, _num_steps(run.steps, run.window))
        for run in (before, after)
    ))  # fmt: skip


def _side(
    places: _Places, step: str, force: bool, progress: Callable[[str], None]
) -> RunSide:  # fmt: skip
    paths: Any = places if isinstance(places, list | tuple) else [places]
    graph = load_graph(paths, progress, force=force)
    steps = find_steps(graph)
    window = choose_window(graph, steps, step)
    path = walk_critical_path(replay_graph(graph), window)
    return RunSide(graph, window, path, _num_steps(steps, window))


def _num_steps(steps: Sequence[Window], window: Window) -> int:
    """Return the number of steps in a window; 1 if it is one step, or has none that are marked."""
    is_marked = bool(steps) and steps[0].is_marked and window.number < 0
    return len(steps) if is_marked else 1
