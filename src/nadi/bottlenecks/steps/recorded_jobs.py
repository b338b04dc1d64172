"""The main analyses of recorded jobs. Apart from ``cli``, only this module joins all stages.

Predict a recorded job after changes, and on another system.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from nadi.bottlenecks.steps.run import Prediction, Run
from nadi.errors import Parameter, UsageError, checked
from nadi.graph.critical_paths import CriticalPath, walk_critical_path
from nadi.graph.event_graph import EventGraph
from nadi.graph.load_graph import load_graph
from nadi.graph.replay import replay_graph
from nadi.graph.stragglers import find_stragglers
from nadi.graph.time_parts import communication_by_rank
from nadi.graph.unexplained import explain_time, unexplained_path
from nadi.graph.windows import Window, choose_window, find_steps
from nadi.systems.library import read_system_file, shipped_systems
from nadi.systems.system_file import SystemFile
from nadi.trace.trace import Job
from nadi.whatif.change_syntax import given_changes
from nadi.whatif.changes import Change
from nadi.whatif.what_if_results import WhatIf, what_if

if TYPE_CHECKING:
    from nadi.graph.module_times import ModuleTimes
    from nadi.recordings.job_of_files import Reading
    from nadi.simulation.on_system import OnSystem


class Asked(NamedTuple):
    """What was asked of a recorded job: changes, each applied alone, and a system."""

    changes: list[Change]
    system: SystemFile | None

    @classmethod
    def parse(cls, changes: str | Sequence[str | Change], system: Path | str) -> Asked:
        """Read changes and a system file, before anything that takes long.

        - Raises InputError, UsageError if the file cannot be read, the system is not known, or a
          change is invalid.
        """
        described = read_system_file(system) if system else None
        return cls(given_changes(changes), described)

    def answer(
        self, graph: EventGraph, window: Window, progress: Callable[[str], None]
    ) -> tuple[list[WhatIf], Prediction | None]:
        """Replay a window after each change, and on the system if there is one.

        - Raises UsageError if a change matches nothing, or the system does not fit the number of
          ranks.
        """
        what_ifs = [what_if(graph, one, window=window) for one in self.changes]
        if self.system is None:
            return what_ifs, None
        progress("predicting")
        from nadi.simulation.on_system import prices_on  # others do not import the simulator

        change = on_system(graph.job, self.system)
        answer = what_if(graph, change, window=window)
        return what_ifs, Prediction(change, prices_on(graph, change.system), answer)


@checked
def on_system(job: Job, described: SystemFile) -> OnSystem:
    """Fit a system to a job, and compare its devices with those that recorded the job.

    If the recording names the device of a system that ships with Nadi, kernel times are scaled
    by the smaller of two ratios: peak, and memory bandwidth. This is an estimate, and the
    returned reason states it. Otherwise kernels take their recorded time.

    Raises
    ------
    UsageError
        If the system does not fit the number of ranks.
    """
    from nadi.simulation.on_system import fit_to_system

    return fit_to_system(job, described, map(read_system_file, shipped_systems()))


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
        ``force``, ``capture`` and ``executor``, as in :func:`load_job`.

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
        return None
    return Asked.parse(what_if, system)
