"""The results of the main analyses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from nadi.bottlenecks.steps.verdict import Verdict, judge
from nadi.graph.critical_paths import CriticalPath
from nadi.graph.event_graph import EventGraph
from nadi.graph.replay import Replay
from nadi.graph.stragglers import Stragglers
from nadi.graph.time_parts import RankCommunication
from nadi.graph.unexplained import Explained, UnexplainedPath
from nadi.graph.windows import SERVING, Window
from nadi.trace.notebook_html import notebook_html, times_of
from nadi.trace.trace import Job
from nadi.units import format_ns

if TYPE_CHECKING:
    from nadi.graph.module_times import ModuleTimes
    from nadi.results.charts.chart_files import Figure
    from nadi.simulation.on_system import OnSystem, Prices
    from nadi.whatif.promising_changes import TriedChange
    from nadi.whatif.what_if_results import Limit, WhatIf


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predicted window of a job on another machine.

    Attributes
    ----------
    change
        The change: the system, and how the job differs on it.
    prices
        The time of each communication on that system.
    what_if
        The window after that change.
    """

    change: OnSystem
    prices: Prices
    what_if: WhatIf

    def __repr__(self) -> str:
        return f"<Prediction {self.change}: {self.what_if.window_ns} ns>"


@dataclass(frozen=True, eq=False)
class Run:
    """The result of the main analysis.

    Attributes
    ----------
    job, graph, replay
        The linked traces, their event graph, and its replay without changes.
    steps
        The steps in the recording.
    window
        The analysed window: a step, all steps, or the whole trace.
    path
        The critical path through the window.
    explained
        How much of the measured time of the whole job the event graph explains.
    unexplained
        What the recording does not explain on the critical path, by cause.
    communication
        Per rank, within the window.
    stragglers
        The straggler of each collective of the window.
    what_ifs
        One per requested change, each applied to the measured job alone.
    prediction
        The window on another system, if one was given.
    modules
        The time of each module in the window, if it was asked for.
    """

    job: Job
    graph: EventGraph
    replay: Replay
    steps: list[Window]
    window: Window
    path: CriticalPath
    explained: Explained
    unexplained: UnexplainedPath
    communication: list[RankCommunication]
    stragglers: Stragglers
    what_ifs: list[WhatIf]
    prediction: Prediction | None = None
    modules: ModuleTimes | None = None

    def __repr__(self) -> str:
        return f"<Run {self.window.name} of {self.job!r}: {self.measured_ns} ns>"

    def _repr_html_(self) -> str:
        exposed = self.verdict.exposed_ns
        facts = {
            "bound by": f"{self.verdict.bound_by}, most in "
            f"{self.verdict.leading.name or 'no operation'}",
            "measured": format_ns(self.measured_ns),
            "replayed": format_ns(self.replayed_ns),
            "exposed communication": f"{format_ns(exposed)}, mean over ranks",
        }
        for change in self.best_changes:
            facts[f"what if {change.change}"] = f"{format_ns(change.gain_ns)} shorter"
        parts = times_of(self.path.by_kind())
        return notebook_html(f"{self.window.name}: its critical path", facts, parts)

    def plot(self) -> Figure:
        """Draw what each rank does, the critical path by kind, and the changes that gain most."""
        from nadi.graph.time_parts import rank_activity
        from nadi.results.charts.chart_files import Figure  # only where charts are drawn
        from nadi.results.charts.charts import time_bars

        activity = rank_activity(self.graph, self.window)
        parts = ("computing", "transferring", "waiting", "copying", "idle")
        path, *_ = self.path.plot().charts
        best = self.best_changes
        charts = [
            time_bars(
                f"{self.window.name}: {format_ns(self.measured_ns)} measured; each rank",
                [f"rank {rank}" for rank in activity["rank"]], parts,
                activity.select(parts).rows(),
            ),
            path,
        ]  # fmt: skip
        if best:
            names = [str(one.change) for one in best]
            gains = [[max(one.gain_ns, 0)] for one in best]
            charts.append(time_bars("What each change would gain alone", names, [""], gains))
        return Figure(charts)

    @property
    def measured_ns(self) -> int:
        """Measured length of the window."""
        return self.window.length(self.graph.time)

    @property
    def replayed_ns(self) -> int:
        """Length of the window in the replay without a change."""
        return self.window.length(self.replay.time)

    @property
    def num_steps(self) -> int:
        """Number of steps that the window consists of; 0 if it is no step, and none are marked."""
        return self.window.num_steps

    @cached_property
    def verdict(self) -> Verdict:
        """What bounds the window."""
        from nadi.whatif.what_if_results import balanced_ranks

        def balanced() -> WhatIf | None:
            return balanced_ranks(self.graph, self.window) if len(self.job.traces) > 1 else None

        # it is as large as the graph, so it does not stay while the window is judged
        balanced_ns = one.window_ns if (one := balanced()) is not None else self.measured_ns
        del one
        verdict = judge(
            self.graph, self.window, self.path,
            unexplained=self.unexplained, stragglers=self.stragglers,
            communication=self.communication, num_steps=self.num_steps,
            balanced_ns=balanced_ns,
        )  # fmt: skip
        if not verdict.is_worth_balancing or (one := balanced()) is None:
            return verdict
        interval = one.interval
        return replace(verdict, balanced_gain_ns=(interval.gain_low_ns, interval.gain_high_ns))

    @cached_property
    def best_changes(self) -> list[TriedChange]:
        """The three changes that gain most among those that the critical path suggests."""
        from nadi.whatif.promising_changes import best_changes

        late = self.verdict.late
        mark = self.steps[0].mark if self.steps and self.steps[0].mark != SERVING else ""
        excess = late.excess if late and late.is_straggler else None
        leads = self.verdict.leading.range_name
        return best_changes(self.graph, self.window, self.path, late=excess, mark=mark, leads=leads)


@dataclass(frozen=True, eq=False)
class Answers:
    """The effect of changes on a window of a job.

    Attributes
    ----------
    graph
        The job as measured.
    window
        The analysed window.
    alone
        Each change applied alone.
    together
        All of them, if there are several.
    sweep
        The values, and the result of all changes with each; ``alone`` is then empty.
    limits
        Upper bounds, if no change was given.
    asked
        The changes as given.
    """

    graph: EventGraph
    window: Window
    alone: list[WhatIf]
    together: WhatIf | None
    sweep: list[tuple[str, WhatIf]]
    limits: list[Limit]
    asked: tuple[str, ...]

    @property
    def whole(self) -> WhatIf:
        """All changes together; without changes, the job as measured."""
        from nadi.whatif.what_if_results import what_if

        if self.together is not None:
            return self.together
        return self.alone[0] if self.alone else what_if(self.graph, window=self.window)

    @property
    def measured_ns(self) -> int:
        """Measured length of the window."""
        return self.window.length(self.graph.time)
