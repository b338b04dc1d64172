"""Estimate and correct the clock skew between ranks, from their collectives and messages.

No rank leaves a collective before the last has entered, and nothing is received before it is sent.
Shifts o, added to the clocks, satisfy this if for every operation of rank i that had to wait for
one of rank j

    end of i's + o_i >= start of j's + o_j

These are difference constraints, which shortest paths solve (Cormen et al., Introduction to
Algorithms, 24.4). A collective is a vertex between the ranks that leave it and those that enter
it, so the number of edges is that of operations, and not that of pairs of ranks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.trace.arrays import Ints
from nadi.trace.collectives import COLLECTIVES, FROM_ROOT, TO_ROOT
from nadi.trace.issues import IssueLog
from nadi.trace.schema import CLOCKS, UNBOUNDED
from nadi.units import format_ns

_LONGEST = 2**55  # ns: a year, from the first to the last event
_ALL_WAIT = tuple(name for name in COLLECTIVES if name not in (*FROM_ROOT, *TO_ROOT))
_MOST_SHOWN = 4
_MOST_OVERLOOKED = 1_000_000  # ns: far more than clocks drift apart in a recording of seconds


class _Side(NamedTuple):
    """One end of operations; int64, shape (operations,)."""

    rank: Ints  # number of the rank, from 0
    meeting: Ints  # number of the collective or transfer, from 0
    time: Ints  # ns since the first event


class _Meetings(NamedTuple):
    """Where ranks wait for one another: no ``leave`` comes before the last ``enter``."""

    enter: _Side
    leave: _Side
    num_ranks: int
    num_meetings: int

    def turned(self) -> _Meetings:
        """Return the same meetings with shifts of the opposite sign."""
        enter = self.leave._replace(time=-self.leave.time)
        return self._replace(enter=enter, leave=self.enter._replace(time=-self.enter.time))

    def eased(self, slack: int) -> _Meetings:
        """Return the same meetings with ends that are later by ``slack`` ns."""
        return self._replace(leave=self.leave._replace(time=self.leave.time + slack))


class _Contradiction(NamedTuple):
    """Ranks that wait for one another in a cycle, and would end ``missing`` ns too early."""

    ranks: list[int]
    meetings: list[int]
    missing: int


def align_clocks(ranks: list[int], parts: pl.DataFrame, log: IssueLog) -> pl.DataFrame:
    """Compute the bounds of each rank's clock skew, and the shift that corrects it.

    - ``ranks``: All ranks of the job, ascending.
    - ``parts``: The matched operations: ``collective``, ``rank``, ``comm_type``, ``comm_bytes``,
      ``src``, ``dst``, ``is_cpu``, ``start`` and ``end`` in ns.
    - ``log``: Records clocks that are shifted, and clocks that no shift can align.
    - Returns: ``schema.CLOCKS``. Clocks are shifted only if an operation ends before it can, and
      only the clocks that cannot be right. Device collectives end at nearly the same time on all
      ranks, so the shift is the median difference of these ends, limited to the possible range;
      without them it is the middle of that range. O(operations), times the number of ranks in a
      chain between two compared ranks, which is usually small.
    """
    number = np.array(ranks, dtype=np.int64)
    own = np.arange(number.size)
    parts = parts.sort("collective", "rank")
    rank = np.searchsorted(number, parts["rank"].to_numpy())
    start, end = parts["start"].to_numpy(), parts["end"].to_numpy()
    is_apart = parts.height > 0 and int(end.max()) - int(start.min()) > _LONGEST
    log.add(
        "job.clocks-apart", "warning", int(is_apart),
        "ranks have start times more than a year apart",
        "clocks are not compared; give ranks of one run",
    )  # fmt: skip
    if is_apart or parts.height == 0:
        return CLOCKS.build(number.size, {"rank": number, "reference": number, "low": 0, "high": 0})
    meetings = _meetings(parts, rank, number.size)
    reference = _references(parts, rank, number.size)
    shift, contradiction = _lowered(meetings, np.zeros_like(own))
    if contradiction:
        eased = _made_possible(meetings, contradiction, number, log)
        if eased is None:
            return CLOCKS.build(number.size, {"rank": number, "reference": number[reference]})
        meetings, shift = eased, _lowered(eased, np.zeros_like(own))[0]
    at_reference = np.where(reference == own, 0, UNBOUNDED)
    high = _lowered(meetings, at_reference)[0]
    low = -_lowered(meetings.turned(), at_reference)[0]
    if shift.any():
        target = _targets(parts, rank, low, high)
        shift = _lowered(meetings, target)[0]
    _report(number, shift, low, high, log)
    columns = {
        "rank": number, "reference": number[reference], "shift": shift, "low": low, "high": high,
    }  # fmt: skip
    return CLOCKS.build(number.size, columns)


def _meetings(parts: pl.DataFrame, rank: Ints, num_ranks: int) -> _Meetings:
    """Find who waits for whom: in a broadcast all ranks for the root, in a reduce the root for all.

    An operation that moves no bytes waits for nothing, except for a barrier. Operations with an
    unknown root are left out.
    """
    kind = pl.col("comm_type").cast(pl.String)
    is_root = [pl.col("rank") == pl.col(end) for end in ("src", "dst")]
    from_root = kind.is_in(FROM_ROOT) & (pl.col("src") >= 0)
    to_root = kind.is_in(TO_ROOT) & (pl.col("dst") >= 0)
    moves = (pl.col("comm_bytes") != 0) | (kind == "barrier")
    all_wait = kind.is_in(_ALL_WAIT)
    enter = all_wait | (from_root & is_root[0]) | to_root | (kind == "send")
    leave = all_wait | (from_root & ~is_root[0]) | (to_root & is_root[1]) | (kind == "recv")
    sides = parts.select(enter=enter & moves, leave=leave & moves)
    first = int(parts["start"].min() or 0)  # type: ignore[arg-type]
    meeting = np.unique(parts["collective"].to_numpy(), return_inverse=True)[1]

    def side(chosen: str, time: str) -> _Side:
        rows = np.flatnonzero(sides[chosen].to_numpy())
        return _Side(rank[rows], meeting[rows], parts[time].to_numpy()[rows] - first)

    num_meetings = int(meeting.max(initial=-1)) + 1
    return _Meetings(side("enter", "start"), side("leave", "end"), num_ranks, num_meetings)


def _references(parts: pl.DataFrame, rank: Ints, num_ranks: int) -> Ints:
    """Return the lowest rank that each one is connected with, directly or through others."""
    meeting = np.unique(parts["collective"].to_numpy(), return_inverse=True)[1]
    lowest = np.arange(num_ranks)
    while True:
        of_meeting = np.full(int(meeting.max(initial=-1)) + 1, num_ranks, dtype=np.int64)
        np.minimum.at(of_meeting, meeting, lowest[rank])
        lower = lowest.copy()
        np.minimum.at(lower, rank, of_meeting[meeting])
        if (lower == lowest).all():
            return lowest
        lowest = lower


def _lowered(meetings: _Meetings, shift: Ints) -> tuple[Ints, _Contradiction | None]:
    """Lower shifts as little as possible until no rank leaves before the last has entered.

    - ``shift``: int64 ns, shape (ranks,): upper bounds of the shifts; 2^62 for no bound.
    - Returns int64, shape (ranks,): The greatest shifts within these bounds that satisfy all
      constraints.
    - and _Contradiction or None: Ranks whose constraints no shifts can satisfy; the shifts are then
      invalid.
    """
    enter, leave = meetings.enter, meetings.leave
    cause, awaited = np.full((2, meetings.num_ranks), -1, dtype=np.int64)
    first_left = np.full(meetings.num_meetings, -1, dtype=np.int64)  # the rank that leaves first
    while True:
        latest = np.full(meetings.num_meetings, UNBOUNDED, dtype=np.int64)
        left = np.where(shift[leave.rank] < UNBOUNDED, shift[leave.rank] + leave.time, UNBOUNDED)
        np.minimum.at(latest, leave.meeting, left)
        is_first = left == latest[leave.meeting]
        first_left[leave.meeting[is_first]] = leave.rank[is_first]
        limit = latest[enter.meeting]
        limit = np.where(limit < UNBOUNDED, limit - enter.time, UNBOUNDED)
        lower = shift.copy()
        np.minimum.at(lower, enter.rank, limit)
        binds = (limit == lower[enter.rank]) & (lower < shift)[enter.rank]
        if not binds.any():
            return shift, None
        awaited[enter.rank[binds]] = enter.meeting[binds]
        # each rank is lowered by one meeting, the last of those that bind
        lowered = np.flatnonzero(lower < shift)
        cause[lowered] = first_left[awaited[lowered]]
        shift = lower
        # a cycle of causes: following it would lower the same ranks forever
        if circle := _circle(cause):
            return shift, _contradiction(meetings, circle, cause, awaited)


def _circle(cause: Ints) -> list[int]:
    """Find a cycle of ranks that cause one another's shift; empty if there is none."""
    nowhere = cause.size
    step = np.append(np.where(cause >= 0, cause, nowhere), nowhere)
    jump = step
    for _ in range(max(nowhere, 1).bit_length()):
        jump = jump[jump]
    if (jump == nowhere).all():
        return []
    first = int(jump[np.argmax(jump != nowhere)])
    circle = [first]
    while (rank := int(step[circle[-1]])) != first:
        circle.append(rank)
    return circle


def _contradiction(
    meetings: _Meetings, circle: list[int], cause: Ints, awaited: Ints
) -> _Contradiction:
    enter, leave = meetings.enter, meetings.leave
    missing = 0
    for rank in circle:
        meeting = awaited[rank]
        entered = enter.time[(enter.rank == rank) & (enter.meeting == meeting)]
        left = leave.time[(leave.rank == cause[rank]) & (leave.meeting == meeting)]
        missing += int(entered.max()) - int(left.min())
    return _Contradiction(circle, awaited[circle].tolist(), missing)


def _made_possible(
    meetings: _Meetings, worst: _Contradiction, number: Ints, log: IssueLog
) -> _Meetings | None:
    """Tolerate early ends by the smallest slack with which all clocks can agree.

    None if the slack exceeds what clock drift explains.
    """
    slack, found = 0, worst
    eased: _Meetings | None = meetings
    while eased is not None:
        missing = -(-found.missing // len(found.ranks))  # beyond the slack tolerated so far
        slack += max(missing, slack // 8, 1)
        eased = meetings.eased(slack) if slack <= _MOST_OVERLOOKED else None
        contradiction = eased and _lowered(eased, np.zeros(number.size, dtype=np.int64))[1]
        if not contradiction:
            break
        found = contradiction
    names = ", ".join(str(rank) for rank in sorted(number[found.ranks])[:_MOST_SHOWN])
    where = ", ".join(str(meeting) for meeting in sorted(set(found.meetings))[:_MOST_SHOWN])
    outcome = "no clock is shifted" if eased is None else "this much is tolerated"
    log.add(
        "job.clocks-contradict", "warning", len(found.ranks),
        f"ranks end communication before it is possible, and no clock shift corrects this: ranks "
        f"{names} in matches {where}, by {format_ns(slack)} or more; {outcome}",
        "either clocks drift, or the recordings are of different runs",
    )  # fmt: skip
    return eased


def _targets(parts: pl.DataFrame, rank: Ints, low: Ints, high: Ints) -> Ints:
    """Return the most likely shift of each rank; int64 ns, shape (ranks,)."""
    target = np.zeros(low.size, dtype=np.int64)
    is_off = (low > 0) | (high < 0)
    bounded = (low > -UNBOUNDED) & (high < UNBOUNDED)
    on_device = (~parts["is_cpu"] & parts["comm_type"].cast(pl.String).is_in(_ALL_WAIT)).to_numpy()
    end, meeting = parts["end"].to_numpy()[on_device], parts["collective"].to_numpy()[on_device]
    member = rank[on_device]
    # the lowest rank of each collective comes first, so its shift is known by then
    _, first, of = np.unique(meeting, return_index=True, return_inverse=True)
    by_rank = np.argsort(member, kind="stable")
    begin = np.searchsorted(member[by_rank], np.arange(low.size + 1))
    for one in np.flatnonzero(is_off).tolist():
        mine = by_rank[begin[one] : begin[one + 1]]
        leader = first[of[mine]]
        mine, leader = mine[member[leader] < one], leader[member[leader] < one]
        if mine.size:
            likely = int(np.median(end[leader] + target[member[leader]] - end[mine]))
        elif bounded[one]:
            likely = (int(low[one]) + int(high[one])) // 2
        else:
            likely = 0
        target[one] = min(max(likely, int(low[one])), int(high[one]))
    return target


def _report(number: Ints, shift: Ints, low: Ints, high: Ints, log: IssueLog) -> None:
    shifted = np.flatnonzero(shift)
    told = [
        f"rank {number[one]} by {format_ns(int(shift[one]))} "
        f"({_bound(int(low[one]))} to {_bound(int(high[one]))})"
        for one in shifted[:_MOST_SHOWN].tolist()
    ]
    more = f" and {shifted.size - _MOST_SHOWN} more" if shifted.size > _MOST_SHOWN else ""
    log.add(
        "job.clocks", "warning", shifted.size,
        f"clock skew: ranks leave collectives before others enter them. Shifts applied (possible "
        f"range): {', '.join(told)}{more}",
    )  # fmt: skip


def _bound(shift: int) -> str:
    return "unbounded" if abs(shift) >= UNBOUNDED else format_ns(shift)
