"""Predict a recorded job after changes, and on another system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from nadi.bottlenecks.steps.run import Prediction
from nadi.errors import checked
from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import Window
from nadi.simulation.on_system import OnSystem, fit_to_system, prices_on
from nadi.systems.library import read_system_file, shipped_systems
from nadi.systems.system_file import SystemFile
from nadi.trace.trace import Job
from nadi.whatif.change_syntax import given_changes
from nadi.whatif.changes import Change
from nadi.whatif.what_if_results import WhatIf, what_if

__all__ = ["Asked", "on_system"]


class Asked(NamedTuple):
    """What was asked of a recorded job: changes, each applied alone, and a system."""

    changes: list[Change]
    system: SystemFile | None

    @classmethod
    def parse(cls, changes: str | Sequence[str | Change], system: Path | str) -> Asked:
        """Read changes and a system file, before anything that takes long.

        Raises
        ------
        InputError, UsageError
            If the file cannot be read, the system is not known, or a change is invalid.
        """
        described = read_system_file(system) if system else None
        return cls(given_changes(changes), described)

    def answer(
        self, graph: EventGraph, window: Window, progress: Callable[[str], None]
    ) -> tuple[list[WhatIf], Prediction | None]:
        """Replay a window after each change, and on the system if there is one.

        Raises
        ------
        UsageError
            If a change matches nothing, or the system does not fit the number of ranks.
        """
        what_ifs = [what_if(graph, one, window=window) for one in self.changes]
        if self.system is None:
            return what_ifs, None
        progress("predicting")
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
    return fit_to_system(job, described, map(read_system_file, shipped_systems()))
