"""The main analyses of recorded jobs. Apart from ``cli``, only this module joins all stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from nadi.bottlenecks.steps.run import Run
from nadi.errors import Parameter, UsageError
from nadi.graph.critical_paths import CriticalPath, walk_critical_path
from nadi.graph.event_graph import EventGraph
from nadi.graph.explained_time import explain_time
from nadi.graph.load_graph import load_graph
from nadi.graph.rank_activity import communication_by_rank
from nadi.graph.replay import replay_graph
from nadi.graph.stragglers import find_stragglers
from nadi.graph.unexplained import unexplained_path
from nadi.graph.windows import Window, choose_window, find_steps

if TYPE_CHECKING:
    from nadi.bottlenecks.steps.predictions import Asked
    from nadi.graph.module_times import ModuleTimes
    from nadi.recordings.job_of_files import Reading
    from nadi.whatif.changes import Change

__all__ = ["run"]

_Progress = Callable[[str], None]


def run(
    *paths: Path | str,
    step: str | int = "all",
    window: str = "",
    what_if: str | Sequence[str | Change] = (),
    system: Path | str = "",
    by: str = "",
    progress: _Progress = lambda _: None,
    **reading: Unpack[Reading],
) -> Run:
    """Find what bounds a step, and predict the step time after changes.

    Parameters
    ----------
    paths
        Folders or files, as in :func:`load_job`.
    step
        Number of a step, or ``all``.
    window
        A time range instead of a step, such as ``120ms:180ms``; see :func:`choose_window`.
    what_if
        A change such as ``scale aten::mm 0.5``, or several, each applied alone; as texts or as
        values, which :func:`nadi.what_if` takes.
    system
        A system as :func:`nadi.load_system` takes it, to predict the step there.
    by
        ``module`` for the time of each module too.
    progress
        Called with a line of text before each longer stage.
    reading
        ``force`` and ``capture``, as in :func:`load_job`.

    Raises
    ------
    InputError
        If a file cannot be read, files are not from one job, or no operation has a timestamp.
    UsageError
        If ``by`` is unknown, the step or time range does not exist, a change is invalid or matches
        nothing, or the system does not fit the number of ranks.
    """
    if by not in ("", "module"):
        raise UsageError(Parameter("by", by), "is not known", "give module")
    asked = _parsed(what_if, system)
    graph = load_graph(paths, progress, **reading)
    steps = find_steps(graph)
    chosen = choose_window(graph, steps, str(step), window)
    found = _analysed(graph, steps, chosen, asked, progress)
    if not by:
        return found
    progress("finding modules")
    return replace(found, modules=_modules(graph, chosen, found.path))


def _analysed(
    graph: EventGraph, steps: list[Window], chosen: Window, asked: Asked | None, progress: _Progress
) -> Run:
    progress("finding the critical path")
    measured = replay_graph(graph)
    path = walk_critical_path(measured, chosen)
    what_ifs, prediction = asked.answer(graph, chosen, progress) if asked else ([], None)
    start, end = chosen.start(graph.time), chosen.end(graph.time)
    return Run(
        job=graph.job,
        graph=graph,
        replay=measured,
        steps=steps,
        window=chosen,
        path=path,
        explained=explain_time(graph),
        unexplained=unexplained_path(measured, path),
        communication=communication_by_rank(graph, start, end),
        stragglers=find_stragglers(measured, chosen),
        what_ifs=what_ifs,
        prediction=prediction,
    )


def _modules(graph: EventGraph, window: Window, path: CriticalPath) -> ModuleTimes:
    from nadi.graph.module_times import time_by_module  # others do not import it

    return time_by_module(graph, window, path)


def _parsed(what_if: str | Sequence[str | Change], system: Path | str) -> Asked | None:
    """Parse what is asked, before files are read."""
    if not (what_if or system):
        return None  # without importing the simulator, which prices communication
    from nadi.bottlenecks.steps.predictions import Asked

    return Asked.parse(what_if, system)
