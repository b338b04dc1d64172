"""The verdict on a window: what bounds it, in a few figures.

The range around operations, such as an annotation or a module, with most time of a path.

Whether a rank is late more than chance makes one of ranks that are alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.critical_paths import CriticalPath, operations_of
from nadi.graph.event_graph import EventGraph
from nadi.graph.module_tree import CALL, has_all_functions
from nadi.graph.rank_excess import EXPLAINS, Excess, find_excess
from nadi.graph.stragglers import Stragglers
from nadi.graph.time_parts import RankCommunication
from nadi.graph.unexplained import MOST_OF_STEPS, LongGaps, UnexplainedPath, least_contention
from nadi.graph.windows import MARK, Window
from nadi.kernels.sequences import union_lengths, union_of
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import kernel_class, pattern
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Trace
from nadi.whatif.selection import covered, modules_of

_LEAST = 3  # repeats: with fewer, their variation is not known


@dataclass(frozen=True)
class RepeatedLateness:
    """How a rank's lateness repeats.

    Attributes
    ----------
    repeats
        The number of steps, or, with fewer than three, of collectives and transfers in which
        ranks wait for each other.
    times
        In how many of them the others wait longer for this rank than it does for them.
    of_steps
        Whether they are steps.
    chance
        The probability that some rank is late by as much if all ranks are alike; 1 with fewer than
        three repeats, which say nothing.
    """

    repeats: int
    times: int
    of_steps: bool
    chance: float

    @property
    def is_tested(self) -> bool:
        """Whether there are enough repeats to say something."""
        return self.repeats >= _LEAST


@checked
def lateness_over_repeats(
    graph: EventGraph, window: Window, stragglers: Stragglers, rank: int
) -> RepeatedLateness:
    """Test whether a rank is late in all repeats, by Student's t over them.

    In each repeat the wait time that the rank causes is compared with the mean of what the other
    ranks cause. If all are alike, the difference varies around 0. That the rank was chosen as the
    latest counts: the probability is multiplied by the number of ranks.
    """
    found = stragglers.collectives
    begins = np.array([step.start(graph.time) for step in window.steps], dtype=np.int64)
    of_steps = begins.size >= _LEAST
    unit = (
        np.maximum(np.searchsorted(begins, found["time"].to_numpy(), side="right") - 1, 0)
        if of_steps
        else np.arange(found.height)
    )
    num_units = begins.size if of_steps else found.height
    num_ranks = len(graph.job.ranks)
    own = found["rank"].to_numpy() == rank
    signed = np.where(own, 1.0, -1.0 / max(num_ranks - 1, 1)) * found["late"].to_numpy()
    sums = np.bincount(unit, weights=signed, minlength=num_units)
    chance = min(num_ranks * _above(sums), 1.0) if num_units >= _LEAST else 1.0
    return RepeatedLateness(num_units, int((sums > 0).sum()), of_steps, chance)


def _above(values: np.ndarray) -> float:
    """Return the probability of a mean this far above 0 if the true mean is 0."""
    deviation = float(np.std(values, ddof=1))
    mean = float(np.mean(values))
    if deviation == 0:
        return 0.0 if mean > 0 else 1.0
    return student_above(mean / deviation * math.sqrt(values.size), values.size - 1)


def student_above(value: float, freedom: int) -> float:
    """Return the probability that Student's t exceeds a value; Abramowitz and Stegun, 26.7.3-4."""
    angle = math.atan(value / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2 == 1
    term = cosine if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return (1 - within) / 2


_HOST = ("host op", "host gap", "launch")
_ALL_OF_IT = 0.9  # of a path: what holds so much says no more than the whole
_MOST_OF_IT = 0.5  # of a range

_NUMBER = rf"^({CALL}.*)_\d+$", "${1}"  # of a module among those of its class


def leading_range(
    graph: EventGraph, path: CriticalPath, most_ns: int
) -> tuple[str, int, int, pl.DataFrame] | None:
    """Find the range in which the host spends most time of a path.

    Ranges are annotations, modules and functions of Python, but for the marks of steps and
    communication. Where all functions are recorded, and modules, functions are none. Modules of a
    class, which differ by a number at their ends, are one range. To a module belongs its backward,
    and what an optimizer does for it.

    - ``most_ns``: The time of the operation with most of it.
    - Returns name, ns, ns in its calls, and segments, or None: Of the smallest range that holds
      half of the range with most time, if that is more than of any operation, and no more than
      nine tenths of the path; the segments of operations of the host in it. None too if half of
      its time is its own, as it is an operation then. O(path * depth + ops).
    """
    segments = path.segments.filter(pl.col("kind").is_in(_HOST) & (pl.col("node") >= 0))
    segments = segments.with_columns(ns=pl.col("end") - pl.col("start")).with_row_index("at")
    op = _operations(graph, segments)
    is_range = _ranges(graph)
    called = _around(graph, op, is_range)
    later = _belonging(graph, op).join(called, on="range", how="semi")
    pairs = pl.concat([called, later]).unique().join(segments.select("at", "ns"), on="at")
    sums = pairs.group_by("range").agg(pl.sum("ns"))
    wide = sums.filter((pl.col("ns") > most_ns) & (pl.col("ns") <= _ALL_OF_IT * path.length))
    if not wide.height:
        return None
    name, whole = wide.sort("ns", "range", descending=[True, False]).row(0)
    inside = pairs.join(pairs.filter(range=name).select("at"), on="at")
    inside = inside.group_by("range").agg(within=pl.sum("ns")).join(sums, on="range")
    inside = inside.filter((pl.col("within") >= _MOST_OF_IT * whole) & (pl.col("ns") <= whole))
    name, _, whole = inside.sort("ns", "range").row(0)
    chosen = segments.filter(pl.col("at").is_in(pairs.filter(range=name)["at"].implode()))
    own = int(chosen.filter(pl.col("name").str.replace(*_NUMBER) == name)["ns"].sum())
    chosen = chosen.filter(~pl.Series(is_range[op]).gather(chosen["at"]))
    if own >= _MOST_OF_IT * whole or not chosen.height:
        return None
    in_calls = segments.filter(pl.col("at").is_in(called.filter(range=name)["at"].implode()))
    return name, int(whole), int(in_calls["ns"].sum()), chosen


def _ranges(graph: EventGraph) -> Bools:
    category, is_module = graph.gather("category"), graph.named(f"^{CALL}")
    found = (category == "annotation").to_numpy() | is_module
    if not (is_module.any() and has_all_functions(graph)):
        holds = np.zeros(graph.num_ops, dtype=np.bool_)
        holds[graph.op_parent[graph.op_parent >= 0]] = True
        found |= (category == "python").to_numpy() & holds
    is_range: Bools = found & ~graph.named(f"^{MARK}") & ~graph.communicates
    return is_range


def _around(graph: EventGraph, op: Ints, is_range: Bools) -> pl.DataFrame:
    """Return the names of the ranges around each segment's operation, and its position: at."""
    at = np.arange(op.size, dtype=np.uint32)
    positions, around = [], []
    while at.size:
        inside = is_range[op]
        positions.append(at[inside])
        around.append(op[inside])
        above = graph.op_parent[op]
        at, op = at[above >= 0], above[above >= 0]
    ops = np.concatenate([np.empty(0, dtype=np.int64), *around])
    where = np.concatenate([np.empty(0, dtype=np.uint32), *positions])
    names = graph.names(ops).str.replace(*_NUMBER)
    return pl.DataFrame({"at": where, "range": names}).unique()


def _belonging(graph: EventGraph, op: Ints) -> pl.DataFrame:
    """Return the names of the modules to which each segment's operation belongs, as ``_around``."""
    tree = modules_of(graph)
    names = pl.Series(tree.names, dtype=pl.String).str.replace(*_NUMBER)
    at, module = np.arange(op.size, dtype=np.uint32), tree.module[op]
    found = [pl.DataFrame({"at": at[:0], "range": names[:0]})]
    while (module >= 0).any():
        at, module = at[module >= 0], module[module >= 0]
        found.append(pl.DataFrame({"at": at, "range": names[module]}))
        module = tree.parent[module]
    return pl.concat(found)


def _operations(graph: EventGraph, segments: pl.DataFrame) -> Ints:
    """Return the operation of each segment; int64."""
    op = np.empty(segments.height, dtype=np.int64)
    rank, node = segments["rank"].to_numpy(), segments["node"].to_numpy()
    for place, number in enumerate(graph.job.ranks):
        mine = rank == number
        if mine.any():
            op[mine] = graph.ops_of_rows(place)[node[mine]]
    return op


BOUND_BY = ("straggler", "communication", "device", "host", "unexplained")
"""What can bound a window."""
WORTH_BALANCING = 0.05
"""The share of a window: a smaller gain is the usual difference between ranks."""
_BY_CHANCE = 0.05
_MANY, _LEAST_PART = 10, 0.1  # operations among which one stands out, and its share of a path
_BUSY = 0.9  # of the window: what a device does then bounds it
_CALLS = ("runtime", "driver")
_KINDS_OF = {
    "communication": ("communication",),
    "device": ("kernel", "memory"),
    "host": ("host op", "host gap", "launch", "delay"),
    "unexplained": ("unexplained",),
}


@dataclass(frozen=True)
class LateRank:
    """The rank that the others wait for most.

    Attributes
    ----------
    rank
        Its number.
    late_ns
        How long the other ranks wait for it in the window: the mean over them.
    caused_ns, all_caused_ns
        The wait time that it causes, and that all ranks cause; summed over the waiting ranks.
    began_late_ns
        How much later than on the latest of the other ranks its first operation of the window
        starts; below 0 if another one begins later.
    excess
        What it does more than the other ranks; of time 0 if nothing.
    repeated
        In how many repeats it is late, and whether chance explains that.
    """

    rank: int
    late_ns: int
    caused_ns: int
    all_caused_ns: int
    began_late_ns: int
    excess: Excess
    repeated: RepeatedLateness

    @property
    def begins_late(self) -> bool:
        """Whether that is most of its lateness."""
        return 2 * self.began_late_ns > self.late_ns

    @property
    def is_explained(self) -> bool:
        """Whether what it does more than the others is a fifth of its lateness or more."""
        return self.excess.time_ns >= EXPLAINS * self.late_ns

    @property
    def is_straggler(self) -> bool:
        """Whether it is late for a reason, and not by chance.

        It is if it runs more operations than the others, begins later, or is late in so many
        repeats and by so much that ranks that are alike would not be; also if nothing repeats.
        """
        if self.begins_late or (self.excess.is_structural and self.is_explained):
            return True
        return not self.repeated.is_tested or self.repeated.chance < _BY_CHANCE

    def costs(self, balanced_gain_ns: int) -> int:
        """Return what its lateness costs: what balanced ranks gain, or how late it began."""
        return max(balanced_gain_ns, self.began_late_ns)

    @property
    def is_alone(self) -> bool:
        """Whether it causes more wait time than all other ranks together."""
        return 2 * self.caused_ns > self.all_caused_ns


@dataclass(frozen=True)
class OneOff:
    """The one among many operations of a name that has half of their time or more.

    Attributes
    ----------
    time_ns
        Its time on the critical path.
    count
        The number of operations of that name there, itself included.
    first_launch
        The work that it launches and that no call launched before in the recording; else empty.
    """

    time_ns: int
    count: int
    first_launch: str


@dataclass(frozen=True)
class Leading:
    """The operation with the largest share of a part of the critical path.

    Attributes
    ----------
    name
        Its name; empty for time between operations.
    time_ns, count
        Its time on the path, and in how many stretches.
    until_ns
        The end of the longest stretch, since the job's origin.
    is_communication
        Whether it is a collective or a message.
    kernel_class, class_ns
        The class of a kernel, else empty, and the time of all kernels of that class on the path.
    is_wait
        Whether it is the time before an operation, which another thread waited to begin.
    range_name, range_ns, called_ns
        Of the host: the range with most time of the path, and that time, if that is more than of
        any operation, and not all of the path; else empty. To a module, or a function or a range
        that counts as one, belongs its backward and the optimizer's work for it; without these it
        is ``called_ns``. ``name`` is then the operation with most time in it.
    is_gap
        Whether it is the long gaps before an operation, which nothing names, and which repeat: what
        the thread does there is Python, or a wait.
    one_off
        Of the host: the one of ten operations or more that has half of the time or more, if that is
        a tenth of the path or more; else None.
    """

    name: str
    time_ns: int
    count: int
    until_ns: int
    is_communication: bool
    kernel_class: str = ""
    class_ns: int = 0
    is_wait: bool = False
    range_name: str = ""
    range_ns: int = 0
    called_ns: int = 0
    is_gap: bool = False
    one_off: OneOff | None = None


@dataclass(frozen=True)
class Verdict:
    """What bounds a window; times are ns on its critical path.

    Attributes
    ----------
    bound_by
        One of ``BOUND_BY``: the straggler if there is one, and the window would be at least 5 %
        shorter with balanced ranks, or the straggler begins so late; else the largest part of the
        critical path. If that is not explained and a device is busy for nine tenths of the window,
        it is the device, or communication if more than half of that is exposed; if most of it are
        long gaps that repeat, the host; if it is under half of the path, the largest part that is
        explained.
    length_ns, balanced_ns
        The length of the window, and with balanced ranks (the same if none can be balanced).
    num_steps
        The number of marked steps in it, or 0.
    host_ns, device_ns, communication_ns, unexplained_ns
        The parts of the critical path: operators, calls, Python and launch latency; kernels and
        copies; communication; what the recording does not explain. Their sum is the length.
    gaps_ns, calls_ns
        Of the host's part: time between operations, and in calls that launch or wait.
    unnamed_ns
        Of what is not explained: long gaps between operations of a thread.
    unnamed_before, unnamed_before_ns
        The operation before which most of these lie, and how much; empty without any.
    device_idle_ns
        The time in which a rank's device runs nothing, as a mean over the ranks with a device;
        -1 if no rank has one.
    exposed_ns
        Communication that no computation overlaps, as a mean over ranks.
    leading
        The operation with the largest share of the largest part; of a device that is busy while
        the path is not explained, of its work.
    meanwhile
        What runs during most of the unexplained time; None if nothing does.
    late
        The rank that the others wait for most; None if none waits.
    cause
        The largest cause of the unexplained time, as in ``unexplained_time.CAUSES``.
    has_stacks, has_host_trace
        Whether Python functions are recorded, and a host trace of each rank.
    not_run_ns
        For how much of the window its threads were ready to run while others had the processors:
        the share of the recorded steps that recorders counted, of the rank with the least; 0 if
        one says nothing.
    heaviest
        The rank with more than half of the critical path, if the others wait for it most as it has
        other or more work than they; else -1. Balanced ranks may gain nothing all the same, where
        they work in turn.
    balanced_gain_ns
        The 90 % interval of what balanced ranks gain, where that is 5 % of the window or more.
    """

    bound_by: str
    length_ns: int
    balanced_ns: int
    num_steps: int
    host_ns: int
    device_ns: int
    communication_ns: int
    unexplained_ns: int
    gaps_ns: int
    calls_ns: int
    unnamed_ns: int
    unnamed_before: str
    unnamed_before_ns: int
    device_idle_ns: int
    exposed_ns: int
    leading: Leading
    meanwhile: Meanwhile | None
    late: LateRank | None
    cause: str
    has_stacks: bool
    has_host_trace: bool
    not_run_ns: int
    heaviest: int = -1
    balanced_gain_ns: tuple[int, int] | None = None

    @property
    def is_worth_balancing(self) -> bool:
        """Whether balanced ranks would gain 5 % of the window or more."""
        return self.length_ns - self.balanced_ns >= WORTH_BALANCING * self.length_ns

    @property
    def device_busy_ns(self) -> int:
        """The time in which a rank's device runs something, as a mean over ranks; 0 without one."""
        return self.length_ns - self.device_idle_ns if self.device_idle_ns >= 0 else 0

    @property
    def is_by_others(self) -> bool:
        """Whether the host bounds the window because other threads have the processors."""
        is_by_host = self.bound_by in ("host", "unexplained")
        return is_by_host and self.not_run_ns > MOST_OF_STEPS * self.length_ns

    @property
    def is_by_busy_device(self) -> bool:
        """Whether what a device does is named though most of the path is not explained."""
        named = {"device": self.device_ns, "communication": self.communication_ns}
        return named.get(self.bound_by, self.length_ns) < self.unexplained_ns


@checked
def judge(
    graph: EventGraph,
    window: Window,
    path: CriticalPath,
    *,
    unexplained: UnexplainedPath,
    stragglers: Stragglers,
    communication: list[RankCommunication],
    balanced_ns: int,
    num_steps: int,
) -> Verdict:
    """Say what bounds a window.

    Parameters
    ----------
    path, unexplained, stragglers, communication
        The critical path of the window, and the analyses of it.
    balanced_ns, num_steps
        The length of the window with balanced ranks, and the number of marked steps in it.

    Returns
    -------
    Verdict
        O(edges + ranks * names).
    """
    parts = _parts(path)
    late = _late_rank(graph, window, path, stragglers)
    exposed = sum(rank.exposed for rank in communication) // len(communication)
    idle = device_idle(graph, window.start(graph.time), window.end(graph.time))
    gaps = unexplained.gaps
    largest = bound_by = _largest(parts, path.length - idle if idle >= 0 else 0, exposed, gaps)
    gain_ns = path.length - balanced_ns
    if late and late.is_straggler and late.costs(gain_ns) >= WORTH_BALANCING * path.length:
        bound_by = "straggler"
    return Verdict(
        bound_by=bound_by,
        length_ns=path.length,
        balanced_ns=balanced_ns,
        num_steps=num_steps,
        host_ns=parts["host"],
        device_ns=parts["device"],
        communication_ns=parts["communication"],
        unexplained_ns=parts["unexplained"],
        gaps_ns=path.by_kind()["host gap"],
        calls_ns=_calls(graph, path),
        unnamed_ns=sum(gap.time_ns for gap in gaps),
        unnamed_before=gaps[0].before if gaps else "",
        unnamed_before_ns=gaps[0].time_ns if gaps else 0,
        device_idle_ns=idle,
        exposed_ns=exposed,
        leading=_leading(graph, window, path, largest, gaps),
        meanwhile=work_meanwhile(graph, path),
        late=late,
        cause=max(unexplained.by_cause, key=unexplained.by_cause.__getitem__),
        has_stacks=bool((graph.gather("category") == "python").any()),
        has_host_trace=all(map(_has_host_trace, graph.job.traces)),
        not_run_ns=round(least_contention(graph) * path.length),
        heaviest=_heaviest(path, late),
    )


def _heaviest(path: CriticalPath, late: LateRank | None) -> int:
    """Return the rank of ``Verdict.heaviest``, or -1."""
    if late is None or not (late.is_alone and late.excess.is_structural and late.is_explained):
        return -1
    own = path.segments.filter(rank=late.rank)
    return late.rank if 2 * (own["end"] - own["start"]).sum() > path.length else -1


def _has_host_trace(trace: Trace) -> bool:
    return "link.no-host" not in trace.issues["code"].to_list()


def _parts(path: CriticalPath) -> dict[str, int]:
    """Return the parts of a path as in ``BOUND_BY``, ns: kinds of its time put together."""
    kinds = path.by_kind()
    return {part: sum(kinds.get(kind, 0) for kind in _KINDS_OF[part]) for part in _KINDS_OF}


def _largest(parts: dict[str, int], busy: int, exposed: int, gaps: tuple[LongGaps, ...]) -> str:
    """Return the part of a path that bounds it, as ``Verdict.bound_by`` says."""
    length = sum(parts.values())
    largest = max(parts, key=parts.__getitem__)
    if largest != "unexplained":
        return largest
    if busy >= _BUSY * length:
        return "communication" if 2 * exposed > busy else "device"
    if 2 * sum(gap.time_ns for gap in gaps if gap.times > 1) > parts[largest]:
        return "host"
    if 2 * parts[largest] < length:
        return max([part for part in parts if part != largest], key=parts.__getitem__)
    return largest


def _late_rank(
    graph: EventGraph, window: Window, path: CriticalPath, stragglers: Stragglers
) -> LateRank | None:
    ranks = stragglers.ranks
    if not ranks["caused"].sum():
        return None
    rank, caused, of_all = ranks["rank"][0], ranks["caused"][0], int(ranks["caused"].sum())
    late = int(stragglers.collectives.filter(rank=rank)["late"].sum())
    begin = window.start(graph.time)
    start = graph.time[0 : 2 * graph.num_ops : 2]
    first = np.full(len(graph.job.traces), np.iinfo(np.int64).max)
    inside = start >= begin
    np.minimum.at(first, graph.op_trace[inside], start[inside])
    mine = graph.job.ranks.index(rank)
    began_late = first[mine] - np.delete(first, mine).max()
    excess = find_excess(graph, window, path, rank, late)
    repeated = lateness_over_repeats(graph, window, stragglers, rank)
    return LateRank(rank, late, caused, of_all, int(began_late), excess, repeated)


def _calls(graph: EventGraph, path: CriticalPath) -> int:
    """Sum the time of the path in calls of a runtime or driver."""
    host = path.segments.filter(pl.col("kind") == "host op")
    on_rank = host.partition_by("rank", as_dict=True)
    total = 0
    for trace in graph.job.traces:
        own = on_rank.get((trace.rank,))
        if own is None:
            continue
        is_call = trace.nodes["category"].gather(own["node"]).is_in(_CALLS)
        total += int((own["end"] - own["start"]).filter(is_call).sum())
    return total


def device_idle(graph: EventGraph, begin: int, end: int) -> int:
    """Return how long devices run nothing in ``[begin, end)``: the mean of ranks with one; or -1.

    All are ns, those of the range since the job's origin.
    """
    ops = np.flatnonzero(graph.gather("category").is_in(DEVICE_WORK).to_numpy())
    start, stop = (np.clip(graph.time[2 * ops + side], begin, end) for side in (0, 1))
    ranks, lane = np.unique(graph.op_trace[ops], return_inverse=True)
    idle = end - begin - union_lengths(start, stop, lane, ranks.size)
    return int(np.mean(idle)) if ranks.size else -1


def _leading_work(graph: EventGraph, window: Window, part: str) -> Leading:
    """Return what takes most time of devices, among their communication or the rest."""
    work = device_work(graph, window).filter(communicates=part == "communication")
    work = work.with_columns(of=pl.Series([kernel_class(name) for name in work["name"]]))
    classes = work.group_by("of").agg(pl.sum("time")).sort("time", "of", descending=True)
    leads, class_ns = classes.row(0)
    most = work.filter(of=leads).row(0, named=True)
    return Leading(
        most["name"], most["time"], most["count"], most["end"], most["communicates"], leads,
        class_ns,
    )  # fmt: skip


def _leading(
    graph: EventGraph, window: Window, path: CriticalPath, part: str, gaps: tuple[LongGaps, ...]
) -> Leading:
    parts = _parts(path)
    if part in ("device", "communication") and parts[part] < parts["unexplained"]:
        return _leading_work(graph, window, part)
    found = path.by_operation().filter(pl.col("kind").is_in(_KINDS_OF[part]))
    leads, class_ns = "", 0
    if part == "device":
        found = found.with_columns(of=pl.Series([kernel_class(name) for name in found["name"]]))
        classes = found.group_by("of").agg(pl.sum("time")).sort("time", "of", descending=True)
        leads, class_ns = classes.row(0)
        found = found.filter(of=leads)
    segments, around, around_ns, called_ns = path.segments, "", 0, 0
    most = int(found["time"][0]) if found.height else 0
    if part == "host" and (leads_range := leading_range(graph, path, most)):
        around, around_ns, called_ns, segments = leads_range
        found = operations_of(segments)
    repeated = [gap for gap in gaps if gap.times > 1]
    if part == "host" and repeated:
        before, time, times, until = repeated[0]
        in_gaps = sum(gap.time_ns for gap in repeated)
        if time > max(most, around_ns) or in_gaps > parts["host"]:
            return Leading(before, time, times, until, False, is_gap=True)
    nowhere = pl.col("name").str.contains(f"^$|^{MARK}")
    if part == "host" and found.select(nowhere.first()).item() and (gap := _leading_gap(path)):
        # time between operations is of many places, and an operation may take longer than each
        named = found.filter(~nowhere, pl.col("time") > gap.time_ns)
        if not named.height:
            return gap
        found = named
    name, kind, time, count, *_ = found.row(0)
    stretches = segments.filter(name=name, kind=kind)
    stretches = stretches.with_columns(length=pl.col("end") - pl.col("start"))
    longest = stretches.sort("length", descending=True).row(0, named=True)
    trace = graph.job.traces[graph.job.ranks.index(longest["rank"])]
    communicates = longest["node"] >= 0 and trace.nodes["comm_type"][longest["node"]] != "none"
    waits = part == "host" and kind == "launch"
    one_off = _one_off(graph, stretches, path.length) if kind == "host op" else None
    return Leading(
        name, time, count, longest["end"], communicates, leads, class_ns, waits, around, around_ns,
        called_ns, one_off=one_off,
    )  # fmt: skip


def _leading_gap(path: CriticalPath) -> Leading | None:
    """Return before which operation a thread spends most time in no operation but its step.

    Without a name it is the end of a step.
    """
    named = path.segments.with_columns(
        before=pl.col("name").shift(-1).fill_null("").str.replace(f"^{MARK}.*", ""),
        length=pl.col("end") - pl.col("start"),
    )
    named = named.filter(
        (pl.col("kind") == "host gap") & pl.col("name").str.contains(f"^$|^{MARK}")
    )
    sums = named.group_by("before").agg(
        pl.sum("length"), pl.len(), pl.col("end").sort_by("length").last()
    )
    if not sums.height:
        return None
    before, time, count, until = sums.sort("length", "before", descending=[True, False]).row(0)
    return Leading(before, time, count, until, False, is_gap=True)


def _one_off(graph: EventGraph, stretches: pl.DataFrame, path_ns: int) -> OneOff | None:
    """Find the operation with most time of a path's stretches of one name, as in ``Leading``."""
    each = stretches.group_by("rank", "node").agg(pl.sum("length"))
    rank, node, time = each.sort("length", "rank", "node", descending=[True, False, False]).row(0)
    one_of_many = each.height >= _MANY and 2 * time >= each["length"].sum()
    if not one_of_many or _LEAST_PART * path_ns > time:
        return None
    op = graph.ops_of_rows(graph.job.ranks.index(rank))[node]
    return OneOff(time, each.height, _first_launch(graph, op))


def _first_launch(graph: EventGraph, op: int) -> str:
    """Return the name of device work that an operation launches for the first time, or ""."""
    call = graph.recorded_launchers
    inside = covered(graph, np.arange(graph.num_ops) == op)
    on_device = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    start = graph.time[0 : 2 * graph.num_ops : 2]
    own_rank = graph.op_trace == graph.op_trace[op]
    code, names = graph.name_codes()
    for work in np.flatnonzero(on_device & (call >= 0) & inside[call]).tolist():
        same = own_rank & on_device & (code == code[work])
        if start[same].min() == start[work]:
            return str(names[code[work]])
    return ""


_ON_THREADS = ("operator", "runtime", "driver")
_WAITS = ("device sync", "stream sync", "event sync", "event query")


class Meanwhile(NamedTuple):
    """The work that overlaps most of the unexplained time of a path.

    ``time_ns`` is the time in which an operation of this name runs meanwhile.
    """

    name: str
    time_ns: int
    on_device: bool


def device_work(graph: EventGraph, window: Window) -> pl.DataFrame:
    """Sum the work of devices in a window by name, as a mean over ranks with a device.

    - Returns: name, time (ns), count, end (of the longest, ns), communicates; most time first.
      O(ops).
    """
    begin, end = window.start(graph.time), window.end(graph.time)
    ops = np.flatnonzero(graph.gather("category").is_in(DEVICE_WORK).to_numpy())
    start, stop = (np.clip(graph.time[2 * ops + side], begin, end) for side in (0, 1))
    ops, start, stop = (column[stop > start] for column in (ops, start, stop))
    ranks = max(np.unique(graph.op_trace[ops]).size, 1)
    return (
        pl.DataFrame({
            "name": graph.names(ops), "time": stop - start, "end": stop,
            "communicates": graph.gather("comm_type", ops) != "none",
        })
        .sort("time", descending=True)
        .group_by("name", "communicates", maintain_order=True)
        .agg(pl.sum("time") // ranks, pl.len().alias("count"), pl.first("end"))
        .sort("time", "name", descending=[True, False])
    )  # fmt: skip


def work_meanwhile(graph: EventGraph, path: CriticalPath) -> Meanwhile | None:
    """Find the work that overlaps most of the unexplained time of a path.

    Work of devices counts before that of other threads; None where no name overlaps a tenth of
    the time, since it would explain nothing. O(ops + path).
    """
    unexplained = path.segments.filter(pl.col("kind") == "unexplained")
    whole = int((unexplained["end"] - unexplained["start"]).sum())
    category = graph.gather("category")
    on_device = category.is_in(DEVICE_WORK).to_numpy()
    on_thread = category.is_in(_ON_THREADS).to_numpy()
    on_thread |= (graph.gather("comm_type") != "none").to_numpy() & ~on_device  # a label of gloo's
    on_thread &= (graph.op_parent < 0) & ~graph.named(pattern(*_WAITS))
    thread = graph.numbers("thread")
    for kind, wanted in ((True, on_device), (False, on_thread)):
        ops = np.flatnonzero(wanted)
        of_ranks = [
            (kind | (thread[ops] != own)) & (graph.op_trace[ops] == graph.job.ranks.index(rank))
            for (rank, own), _ in unexplained.group_by("rank", "thread", maintain_order=True)
        ]
        paths = unexplained.partition_by("rank", "thread", maintain_order=True)
        overlap = sum(
            (_overlap(graph, ops, mine, path) for mine, path in zip(of_ranks, paths, strict=True)),
            np.zeros(ops.size, dtype=np.int64),
        )
        if not overlap.any():
            continue
        names = graph.names(ops)
        sums = pl.DataFrame({"name": names, "time": overlap}).group_by("name").agg(pl.sum("time"))
        name = sums.sort("time", "name", descending=[True, False])["name"][0]
        same = (names == name).to_numpy()
        time = sum(
            _covered(graph, ops[mine & same], path)
            for mine, path in zip(of_ranks, paths, strict=True)
        )
        if 10 * time >= whole:
            return Meanwhile(name, time, kind)
    return None


def _overlap(graph: EventGraph, ops: Ints, mine: Bools, segments: pl.DataFrame) -> Ints:
    """Return for how long operations overlap segments, which do not overlap each other; ns."""
    path = union_of(segments["start"].to_numpy(), segments["end"].to_numpy())
    overlap = path.until(graph.time[2 * ops + 1]) - path.until(graph.time[2 * ops])
    found: Ints = np.where(mine, overlap, 0)
    return found


def _covered(graph: EventGraph, ops: Ints, segments: pl.DataFrame) -> int:
    """Return for how long one of some operations runs during segments; ns."""
    runs = union_of(graph.time[2 * ops], graph.time[2 * ops + 1])
    ends = (segments[side].to_numpy() for side in ("end", "start"))
    until, since = (int(runs.until(moments).sum()) for moments in ends)
    return until - since
