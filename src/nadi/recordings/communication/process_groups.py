"""Process groups of one rank: their members, and the group of each communication operation.

The order in which a rank issued the communication operations of each process group.

Sends and receives of gloo run beside the thread that asked for them, not on it.
"""

import numpy as np
import polars as pl

from nadi.recordings.dependencies.device_calls import host_work
from nadi.trace.arrays import Bools, Ints
from nadi.trace.issues import IssueLog
from nadi.trace.rows import number_rows
from nadi.trace.schema import COMM_TYPES, DEPS, GROUPS, NODE_KINDS
from nadi.trace.trace import Trace

_PAIRWISE = [COMM_TYPES.index("send"), COMM_TYPES.index("recv")]
_DEFAULT = "0"  # PyTorch's name of the group of all ranks
_MOST_RANKS = 2**17  # of a group, as for the groups of a file


class Members:
    """The global ranks of groups, looked up by the rank within the group."""

    def __init__(self, ranks: pl.Series) -> None:
        self.size = ranks.list.len().to_numpy().astype(np.int64)
        self._first = np.cumsum(self.size) - self.size
        self._ranks = ranks.explode(empty_as_null=False).to_numpy().astype(np.int64)

    def rank(self, group: Ints, place: Ints) -> Ints:
        """Return the global rank at each place of a group; -1 where there is none."""
        found = np.full(group.size, -1, dtype=np.int64)
        known = np.flatnonzero((group >= 0) & (place >= 0))
        known = known[place[known] < self.size[group[known]]]
        found[known] = self._ranks[self._first[group[known]] + place[known]]
        return found


def with_default_group(trace: Trace, rows: Ints, types: Ints) -> pl.DataFrame:
    """Return the trace's groups, with the members of the group of all ranks filled in.

    Older recordings do not list these members. If a recording names no group at all and all its
    collectives ran on one stream, the group of all ranks was the only one: every group has a
    stream of its own.

    - ``rows``, ``types``: int64, shape (communications,): nodes, and their places in
      ``schema.COMM_TYPES``.
    """
    groups = trace.groups
    if not 0 < trace.world_size <= _MOST_RANKS:
        return groups
    everyone = list(range(trace.world_size))
    if groups.height:
        unknown = (pl.col("name") == _DEFAULT) & (pl.col("ranks").list.len() == 0)
        ranks = pl.lit(pl.Series([everyone], dtype=GROUPS.dtypes["ranks"])).first()
        return groups.with_columns(ranks=pl.when(unknown).then(ranks).otherwise("ranks"))
    collectives = rows[~np.isin(types, _PAIRWISE)]
    on_device = collectives[trace.column("stream")[collectives] >= 0]
    streams = np.stack([trace.column(name)[on_device] for name in ("device", "stream")])
    if np.unique(streams, axis=1).shape[1] > 1:
        return groups
    columns = {"name": [_DEFAULT], "description": ["default_pg"], "ranks": [everyone]}
    return GROUPS.build(1, columns)


def group_of_each(
    trace: Trace, groups: pl.DataFrame, rows: Ints, types: Ints, recorded: Ints, log: IssueLog
) -> Ints:
    """Find the group of each communication operation: rows of ``groups``, or -1.

    If the recording does not name the group and several exist, it is inferred from the thread that
    ran the operation: every gloo group has threads of its own, created together and in the order
    of the groups. gloo runs sends and receives on the calling thread; they are assigned to the
    group of all ranks.

    - ``rows``, ``types``: int64, shape (communications,), as for :func:`with_default_group`.
    - ``recorded``: int64, shape (communications,): the group that a file names, or -1.
    """
    found = recorded.copy()
    unknown = np.flatnonzero(found < 0)
    if groups.height == 1:
        found[unknown] = 0
    elif groups.height > 1:
        on_host = trace.nodes["is_cpu"].to_numpy()[rows[unknown]]
        pairwise = np.isin(types[unknown], _PAIRWISE)
        sizes = groups["ranks"].list.len().to_numpy()
        found[unknown[on_host & pairwise]] = int(sizes.argmax())
        gloo = unknown[on_host & ~pairwise]
        backend = groups["backend"]
        candidates = np.flatnonzero(((backend == "") | backend.str.contains("gloo")).to_numpy())
        number = _by_thread(trace.column("thread")[rows[gloo]], candidates.size)
        found[gloo] = np.where(number >= 0, candidates[number], -1) if candidates.size else -1
    log.add(
        "link.comm-group-inferred", "info", int((found[unknown] >= 0).sum()),
        "communication operations name no process group: their groups are inferred from threads "
        "and streams",
    )  # fmt: skip
    log.add(
        "link.comm-group-unknown", "info", int((found < 0).sum()),
        "communication operations have an unknown process group",
        "link all ranks together: groups are then inferred from collectives that ranks share",
    )  # fmt: skip
    return found


def _by_thread(thread: Ints, num_groups: int) -> Ints:
    """Find the group of each operation from the gaps between the ids of their threads.

    Threads of one group are created right after one another, so the widest gaps separate groups.
    -1 for all operations if there are too few threads, or if the gaps are ambiguous.
    """
    used = np.unique(thread)
    gaps = np.diff(used)
    widest = np.argsort(-gaps, kind="stable")[: num_groups - 1]
    within = np.delete(gaps, widest).max(initial=1)
    if used.size < num_groups or (gaps[widest] <= within).any():
        return np.full(thread.size, -1, dtype=np.int64)
    return np.searchsorted(used[np.sort(widest) + 1], thread, side="right").astype(np.int64)


PAIRWISE = ("COMM_SEND", "COMM_RECV")
_KINDS = [NODE_KINDS.index(kind) for kind in (*PAIRWISE, "COMM_COLL")]


def communication_rows(trace: Trace) -> Ints:
    """Return the timed communication operations in the order in which they were issued.

    gloo's threads take work in turn, and may start it in another order than it was issued; the
    record function id is assigned when it is issued. Kernels of a process group may be on several
    streams, which need not run them in the order of their launches; the correlation id is assigned
    at the launch. If any operation of the host, or of a device, has no such id, all of them are
    ordered by their starts.

    - Returns int64, shape (communications,): Rows, those of gloo first. O(nodes).
    """
    start = trace.column("start")
    rows = np.flatnonzero(np.isin(trace.codes("kind"), _KINDS) & (start >= 0))
    start, asked = start[rows], trace.column("rf_id")[rows]
    on_device = ~trace.nodes["is_cpu"].to_numpy()[rows]
    asked = np.where(on_device, trace.column("correlation")[rows], asked)
    for place, none in ((on_device, 0), (~on_device, -1)):
        if (asked[place] <= none).any():
            asked[place] = 0
    return rows[np.lexsort((rows, start, asked, on_device))]


def group_order(trace: Trace) -> pl.DataFrame:
    """Order the communication operations of each process group.

    Collectives follow one another; so do sends to one rank and receives from one rank. If a group
    uses both gloo and a device library, each of the two has its own order.

    - Returns: ``schema.DEPS`` of kind comm; inferred for gloo if there are several groups, as gloo
      does not record the group. O(nodes).
    """
    rows = communication_rows(trace)
    group, src, dst = (trace.column(name)[rows] for name in ("group", "src", "dst"))
    on_host = trace.nodes["is_cpu"].to_numpy()[rows]
    kind = trace.codes("kind")[rows].astype(np.int64)
    pairwise = np.isin(kind, _KINDS[: len(PAIRWISE)])
    # sends and receives with an unknown peer have no known order
    known = np.flatnonzero((group >= 0) & ~(pairwise & ((src < 0) | (dst < 0))))
    ends = (np.where(pairwise, end, -1) for end in (src, dst))
    lane, _ = number_rows([one[known] for one in (group, on_host.astype(np.int64), kind, *ends)])
    order = np.argsort(lane, kind="stable")
    before = np.full(known.size, -1, dtype=np.int64)
    before[order[1:]] = np.where(lane[order[1:]] == lane[order[:-1]], rows[known[order[:-1]]], -1)
    later = before >= 0
    columns = {
        "src": before[later],
        "dst": rows[known[later]],
        "kind": "comm",
        "inferred": on_host[known[later]] & (trace.groups.height > 1),
    }
    return DEPS.build(int(later.sum()), columns)


_TRANSFERS = ("gloo:send", "gloo:recv")


def transfers_beside_threads(trace: Trace, launcher: Ints, log: IssueLog) -> Trace:
    """Move sends and receives of gloo off the thread that issued them, if it works meanwhile.

    PyTorch records them on the calling thread, from the call to the end of the wait, although the
    thread may go on in between: what it does there would count as nested in the transfer. Each is
    moved to the first of further threads on which no other transfer runs meanwhile. If the thread
    only waits, the transfer stays.

    - ``launcher``: int64, shape (nodes,): the call that issued each operation, or -1.
    - ``log``: Records how many are moved.
    - Returns: With other threads for these nodes. O(nodes + transfers * threads).
    """
    start, thread = trace.column("start"), trace.column("thread")
    end = start + trace.column("duration")
    is_transfer = np.logical_or(*(host_work(trace, name) for name in _TRANSFERS))
    issued = is_transfer & (launcher >= 0) & (thread == thread[launcher])
    rows = np.flatnonzero(issued)
    rows = rows[_works_in(trace, thread[rows], end[launcher[rows]], end[rows])]
    if rows.size == 0:
        return trace
    first_free = int(thread.max()) + 1
    until: list[int] = []  # when each further thread is free again
    moved = thread.copy()
    for row in rows[np.argsort(start[rows], kind="stable")].tolist():
        lane = next((i for i, time in enumerate(until) if time <= start[row]), len(until))
        until[lane : lane + 1] = [int(end[row])]
        moved[row] = first_free + lane
    log.add(
        "link.gloo-transfers", "info", rows.size,
        "sends and receives of gloo last while their threads go on",
        f"they are shown on threads of their own, {first_free} and above",
    )  # fmt: skip
    return trace.changed(nodes=trace.nodes.with_columns(thread=pl.Series(moved)))


def _works_in(trace: Trace, thread: Ints, begin: Ints, end: Ints) -> Bools:
    """Return in which intervals of threads an operator begins; shape (intervals,)."""
    operators = np.flatnonzero(trace.category_mask("operator"))
    start, of_thread = trace.column("start")[operators], trace.column("thread")[operators]
    found = np.zeros(thread.size, dtype=np.bool_)
    for one in np.unique(thread):
        mine = thread == one
        starts = np.sort(start[of_thread == one])
        low, high = (np.searchsorted(starts, side[mine]) for side in (begin, end))
        found[mine] = high > low
    return found
