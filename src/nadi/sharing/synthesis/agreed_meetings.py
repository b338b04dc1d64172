"""Communication of drawn programs that fits together on all ranks, and cannot deadlock.

The k-th collective of a process group on one of its ranks is the k-th on all of them; the k-th
message from a rank to another is the k-th that this one receives. What has no counterpart is left
out. If what is left waited for itself in a circle, communication is taken in an order in which
each rank can come to it, and what is in nobody's turn is left out.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.sharing.synthesis.job_columns import RankColumns
from nadi.trace.arrays import Ints
from nadi.trace.schema import NODE_KINDS
from nadi.trace.validate import cycle_row

_SEND, _RECV, _COLL = (NODE_KINDS.index(name) for name in ("COMM_SEND", "COMM_RECV", "COMM_COLL"))


class Meeting(NamedTuple):
    """One communication."""

    rows: tuple[tuple[int, int], ...]  # the ranks that take part, and the row of each
    number: int  # of a message: how many went the same way before


def matched_meetings(
    ranks: Sequence[RankColumns], groups: Sequence[tuple[int, ...]]
) -> list[Meeting]:
    """Return the communication in which all take part who have to. O(communication)."""
    collectives: dict[int, dict[int, list[int]]] = defaultdict(dict)
    sends: dict[tuple[int, int], list[int]] = defaultdict(list)
    receives: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, rank in enumerate(ranks):
        for row in np.flatnonzero(rank.kind == _COLL).tolist():
            collectives[int(rank.group[row])].setdefault(number, []).append(row)
        for row in np.flatnonzero(rank.kind == _SEND).tolist():
            sends[number, int(rank.peer[row])].append(row)
        for row in np.flatnonzero(rank.kind == _RECV).tolist():
            receives[int(rank.peer[row]), number].append(row)
    found = []
    for group, own in collectives.items():
        members = groups[group] if group >= 0 else tuple(range(len(ranks)))
        many = min(len(own.get(rank, ())) for rank in members)
        found += [
            Meeting(tuple((rank, own[rank][turn]) for rank in members), turn)
            for turn in range(many)
        ]
    for way, rows in sends.items():
        for turn, (send, receive) in enumerate(zip(rows, receives.get(way, ()), strict=False)):
            found.append(Meeting(((way[0], send), (way[1], receive)), turn))
    return found


def without_deadlock(
    ranks: Sequence[RankColumns], lanes: Sequence[Ints], meetings: Sequence[Meeting]
) -> list[Meeting]:
    """Return meetings that can all take place; all of them if they can. O(operations log).

    Each is one moment for all who take part, and operations wait for what they state and for
    those before them on their thread or stream.
    """
    begin = np.cumsum([0, *(rank.size for rank in ranks)])
    vertex = np.arange(begin[-1])
    for meeting in meetings:
        at = [int(begin[rank]) + row for rank, row in meeting.rows]
        vertex[at] = min(at)
    src, dst = [], []
    for number, (rank, lane) in enumerate(zip(ranks, lanes, strict=True)):
        order = np.argsort(lane, kind="stable")
        order = order[
            (lane[order] >= 0) & (rank.kind[order] != _SEND) & (rank.kind[order] != _RECV)
        ]
        same = lane[order[1:]] == lane[order[:-1]]
        src.append(begin[number] + np.concatenate([rank.src, order[:-1][same]]))
        dst.append(begin[number] + np.concatenate([rank.dst, order[1:][same]]))
    source, target = vertex[np.concatenate(src)], vertex[np.concatenate(dst)]
    if cycle_row(vertex.size, source, target) < 0:
        return list(meetings)
    return _in_turns(meetings)


def _in_turns(meetings: Sequence[Meeting]) -> list[Meeting]:
    """Return meetings in an order that is that of each rank's rows, without those in the way."""
    waiting: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, meeting in enumerate(meetings):
        for rank, row in meeting.rows:
            waiting[rank].append((row, number))
    for own in waiting.values():
        own.sort(reverse=True)
    is_gone = [False] * len(meetings)
    kept: list[Meeting] = []
    while True:
        for own in waiting.values():
            while own and is_gone[own[-1][1]]:
                own.pop()
        heads = {rank: own[-1][1] for rank, own in waiting.items() if own}
        if not heads:
            return kept
        ready = [
            one for one in dict.fromkeys(heads.values())
            if all(heads.get(rank) == one for rank, _ in meetings[one].rows)
        ]  # fmt: skip
        for one in ready:
            kept.append(meetings[one])
            is_gone[one] = True
        if not ready:  # who has most to do goes on without it
            rank = max(heads, key=lambda one: (len(waiting[one]), -one))
            is_gone[heads[rank]] = True
