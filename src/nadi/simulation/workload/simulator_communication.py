"""Convert communication to what ASTRA-sim supports: its types, and equal sizes on all members.

Order the activities and communication of all ranks so that no simulator deadlocks.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nadi.errors import NadiError
from nadi.graph.event_graph import EventGraph
from nadi.kernels.paths import edges_by_vertex, replay_times, topological_order
from nadi.simulation.workload.activities import Activities
from nadi.systems.system import ASTRA_SIM_COLLECTIVES
from nadi.trace.arrays import Ints, Ints32
from nadi.trace.collectives import COLLECTIVES, run_as
from nadi.trace.issues import IssueLog
from nadi.trace.rows import nearest
from nadi.trace.schema import COMMUNICATION_KINDS

# by number: the recorded name, and the members as positions among the ranks of the job
Groups = dict[int, tuple[str, tuple[int, ...]]]
_NOT_PLAYED = ("none", "other", "send", "recv")
_BARRIER_BYTES = 4
_SMALLEST_GATHER = 64  # bytes: ASTRA-sim never ends one that is smaller than its number of splits
_PLAYED_ALONE = "broadcast"  # ASTRA-sim gives it its measured duration, and waits for no other rank
_FIRST_GROUP = 1  # 0 means all ranks, whatever comm_group.json says


@dataclass(frozen=True)
class Transfer:
    """One collective, or one send with its receive."""

    # the operation of each member in the event graph, in order of rank; for a send with its receive
    # the sender's first
    ops: tuple[int, ...]
    ranks: tuple[int, ...]  # their ranks, as positions among the ranks of the job
    comm_type: str  # the type to write; ``send`` for a send with its receive
    recorded_type: str  # the recorded type
    size: int  # bytes, the same for all members
    group: int  # its number in ``comm_group.json``; -1 for a send with its receive
    # for a send with its receive, a tag that no other message between the two has; else -1
    tag: int
    entered: int  # ns since the job's origin: when the straggler entered, as measured


@dataclass(frozen=True)
class Communication:
    """The collectives and messages of a job."""

    transfers: tuple[Transfer, ...]  # in the order in which their stragglers entered them
    groups: Groups  # the groups of ``comm_group.json``, with their recorded names
    num_alone: int  # operations whose other members have no trace: each is a transfer of its own


def communication_ops(graph: EventGraph) -> Ints:
    """Return the communication operations, none nested in another; ascending."""
    is_comm = graph.gather("kind").is_in(COMMUNICATION_KINDS).to_numpy()
    ops = np.flatnonzero(is_comm)
    return ops[nearest(graph.op_parent[ops], graph.op_parent, is_comm) < 0]


def find_communication(
    graph: EventGraph, comm_ops: Ints, log: IssueLog, played: Collection[str] = ()
) -> Communication:
    """Describe all communication of a job. O(matches).

    An operation whose counterparts are missing or of another type takes its measured duration.

    - ``comm_ops``: int64: from :func:`communication_ops`.
    - ``played``: Types that the simulator supports as recorded, with any size; by default those of
      ASTRA-sim. A broadcast that is not among them becomes an all_gather of parts.
    - ``log``: Records what is written differently than recorded.
    """
    position = {rank: number for number, rank in enumerate(graph.job.ranks)}
    op_of_row = [_comm_ops_of_rows(graph, trace, comm_ops) for trace in range(len(position))]
    finder = _Finder(graph, played)
    for members in graph.job.matches.partition_by("collective", maintain_order=True):
        ranks = [position[rank] for rank in members["rank"].to_list()]
        rows = members["node"].to_list()
        found = [
            _Member(rank, row, op_of_row[rank][row])
            for rank, row in sorted(zip(ranks, rows, strict=True))
            if row in op_of_row[rank]
        ]
        if len(found) == len(rows):
            finder.add(found)
            for member in found:
                del op_of_row[member.rank][member.row]
    for rank, left in enumerate(op_of_row):
        for row, op in left.items():
            finder.add_alone(_Member(rank, row, op))
    return finder.found(log)


def _comm_ops_of_rows(graph: EventGraph, trace: int, comm_ops: Ints) -> dict[int, int]:
    ops = comm_ops[graph.op_trace[comm_ops] == trace]
    return dict(zip(graph.op_row[ops].tolist(), ops.tolist(), strict=True))


class _Member(NamedTuple):
    rank: int  # position among the ranks of the job
    row: int
    op: int


class _Finder:
    """Collects transfers, and counts what to report about them."""

    def __init__(self, graph: EventGraph, played: Collection[str]) -> None:
        self._graph = graph
        self._played = played
        self._traces = graph.job.traces
        self._types = [trace.nodes["comm_type"].cast(str) for trace in self._traces]
        self._transfers: list[Transfer] = []
        self._groups: dict[tuple[str, tuple[int, ...]], int] = {}
        self._tags: Counter[tuple[int, ...]] = Counter()
        self._replaced: Counter[str] = Counter()
        self._unequal = self._unknown = self._small = 0
        self._num_alone = 0

    def add(self, members: list[_Member]) -> None:
        """Add a collective, or a send with its receive."""
        types = [self._types[member.rank][member.row] for member in members]
        if sorted(types) == ["recv", "send"]:
            members = members if types[0] == "send" else members[::-1]
            ranks = tuple(member.rank for member in members)
            self._add(members, ("send", "send"), self._size(members, 1), -1, self._tags[ranks])
            self._tags[ranks] += 1
        elif len(set(types)) == 1 and types[0] not in _NOT_PLAYED:
            self._add_collective(members, types[0])
        else:
            for member in members:
                self.add_alone(member)

    def add_alone(self, member: _Member) -> None:
        """Add an operation without counterparts on other ranks."""
        self._num_alone += 1
        recorded = self._types[member.rank][member.row]
        size = int(self._traces[member.rank].column("comm_bytes")[member.row])
        self._add([member], (_PLAYED_ALONE, recorded), max(size, 1), self._number([member]), -1)

    def _add_collective(self, members: list[_Member], recorded: str) -> None:
        comm_type = recorded if recorded in self._played else self._stand_in(recorded)
        if comm_type != recorded:
            self._replaced[recorded] += len(members)
        if recorded == "barrier":
            size = _BARRIER_BYTES
        else:
            gathers = comm_type == "all_gather" and not self._played
            size = self._size(members, _SMALLEST_GATHER if gathers else 1)
        if recorded == "broadcast" and comm_type != recorded:
            size = -(-size // len(members))
        self._add(members, (comm_type, recorded), size, self._number(members), -1)

    def _stand_in(self, recorded: str) -> str:
        if (recorded == _PLAYED_ALONE and not self._played) or recorded not in COLLECTIVES:
            return recorded
        return run_as(recorded, ASTRA_SIM_COLLECTIVES)

    def _number(self, members: list[_Member]) -> int:
        """Return the number of the members' group; a new number for a new group."""
        first = members[0]
        row = int(self._traces[first.rank].column("group")[first.row])
        name = self._traces[first.rank].groups["name"][row] if row >= 0 else ""
        ranks = tuple(member.rank for member in members)
        return self._groups.setdefault((name, ranks), _FIRST_GROUP + len(self._groups))

    def _add(
        self, members: list[_Member], types: tuple[str, str], size: int, group: int, tag: int
    ) -> None:
        ops = tuple(member.op for member in members)
        ranks = tuple(member.rank for member in members)
        entered = int(self._graph.time[2 * np.array(ops)].max())
        self._transfers.append(Transfer(ops, ranks, *types, size, group, tag, entered))

    def _size(self, members: list[_Member], smallest: int) -> int:
        sizes = {int(self._traces[m.rank].column("comm_bytes")[m.row]) for m in members}
        size = max(sizes)
        if size <= 0:
            self._unknown += len(members)
        elif len(sizes) > 1:
            self._unequal += len(members)
        if 0 < size < smallest:
            self._small += len(members)
        return max(size, smallest)

    def found(self, log: IssueLog) -> Communication:
        """Return all added transfers, and report what was changed."""
        log.add(
            "export.comm-type", "info", self._replaced.total(),
            "communication operations have a type that ASTRA-sim does not support; each is "
            "written as one that takes as long: "
            + ", ".join(f"{name} as {self._stand_in(name)}" for name in sorted(self._replaced)),
        )  # fmt: skip
        log.add(
            "export.comm-size-unequal", "info", self._unequal,
            "members of collectives have different sizes: the largest is written for all, as a "
            "simulator does not match members of different sizes",
        )  # fmt: skip
        log.add(
            "export.comm-size-small", "info", self._small,
            f"all_gather operations are smaller than {_SMALLEST_GATHER} bytes, and ASTRA-sim may "
            f"never end them: written with {_SMALLEST_GATHER} bytes",
        )  # fmt: skip
        log.add(
            "export.comm-size-unknown", "warning", self._unknown,
            "communication operations have an unknown size on all members: only their latency is "
            "simulated",
            "record with shapes (record_shapes=True)",
        )  # fmt: skip
        transfers = tuple(sorted(self._transfers, key=lambda transfer: transfer.entered))
        groups = {number: group for group, number in self._groups.items()}
        return Communication(transfers, groups, self._num_alone)


_Pairs = tuple[Ints, Ints]


@dataclass(frozen=True, eq=False)
class Order:
    """The order in which activities are written and communication is started."""

    # int64, shape (activities,): in order of start, but after all dependencies of the activity
    position: Ints
    # src, dst: int64, shape (pairs,): a communication activity of a rank, and the next one of that
    # rank
    src: Ints
    dst: Ints


def find_order(
    activities: Activities, transfers: Sequence[Transfer], activity_of_op: Ints
) -> Order:
    """Order activities and communication. O(activities log activities + dependencies).

    In a simulator a rank takes part in one collective at a time. If one rank starts A before B,
    and another B before A, both wait forever. So all ranks start collectives in the same order:
    that in which their stragglers entered them. If dependencies do not allow this order, another
    one that they allow is used.

    - ``transfers``: In order of ``entered``.
    - ``activity_of_op``: int64, shape (operations,): the activity of each communication operation.
    - Raises NadiError if ranks wait for each other in a cycle once no collective ends for one of
      its members before all have started it.
    """
    job = _WholeJob(activities, transfers, activity_of_op)
    pairs = job.successions(range(len(transfers)))
    order = job.topological(pairs)
    if order is None:
        pairs = job.successions(job.allowed())
        order = job.topological(pairs)
    if order is None:
        raise NadiError(
            "",
            "the collectives of the ranks wait for each other in a cycle, as a rank left a "
            "collective before another rank entered it: a simulator would deadlock",
            "please report this recording",
        )  # fmt: skip
    return Order(job.positions(order, pairs), *pairs)


class _WholeJob:
    """Activities of all ranks, followed by a vertex for the start of each transfer."""

    def __init__(
        self, activities: Activities, transfers: Sequence[Transfer], activity_of_op: Ints
    ) -> None:
        self.num_activities = activities.op.size
        self._activities = activities
        self._transfers = transfers
        # of a send and its receive only the sender is ordered, and the receiver follows it
        members = [activity_of_op[list(one.ops)] for one in transfers]
        self._turns = [
            own[:1] if one.comm_type == "send" else own
            for one, own in zip(transfers, members, strict=True)
        ]
        self._entry = np.arange(self.num_activities)  # the vertex for its dependencies
        for number, turn in enumerate(self._turns):
            self._entry[turn] = self.num_activities + number
        begin = self.num_activities + np.repeat(
            np.arange(len(members)), np.array([own.size for own in members], dtype=np.int64)
        )
        self._src = np.concatenate([activities.src, begin])
        self._dst = np.concatenate([self._entry[activities.dst], *members])

    def successions(self, numbers: Iterable[int]) -> _Pairs:
        """Make each rank start its transfers in the order of their numbers."""
        of_rank: dict[int, list[int]] = defaultdict(list)
        for number in numbers:
            # a sender comes before its receiver
            ranks = self._transfers[number].ranks[: self._turns[number].size]
            for rank, activity in zip(ranks, self._turns[number].tolist(), strict=True):
                of_rank[rank].append(activity)
        pairs = [pair for turns in of_rank.values() for pair in pairwise(turns)]
        src, dst = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return src, dst

    def allowed(self) -> list[int]:
        """Order the transfers in a way that dependencies allow; empty if there is a cycle."""
        nothing = np.zeros(0, dtype=np.int64)
        order = self.topological((nothing, nothing))
        if order is None:
            return []
        return [
            number
            for number in (order - self.num_activities).tolist()
            if 0 <= number < len(self._transfers)
        ]

    def topological(self, pairs: _Pairs) -> Ints32 | None:
        """Order all vertices topologically; None if there is a cycle."""
        in_ptr, in_src, _ = self._edges(pairs)
        order = np.empty(in_ptr.size - 1, dtype=np.int32)
        return None if topological_order(in_ptr, in_src, order) >= 0 else order

    def positions(self, order: Ints32, pairs: _Pairs) -> Ints:
        """Order the activities by start, but after all their dependencies."""
        in_ptr, in_src, weight = self._edges(pairs)
        size = in_ptr.size - 1
        time, not_asked = np.empty(size, dtype=np.int64), np.empty(0, dtype=np.int32)
        replay_times(order, in_ptr, in_src, weight, np.zeros(size, dtype=np.int64), time, not_asked)
        place = np.empty(size, dtype=np.int64)
        place[order] = np.arange(size)
        own = np.arange(self.num_activities)
        position = np.empty(own.size, dtype=np.int64)
        position[np.lexsort((place[own], time[own]))] = own
        return position

    def _edges(self, pairs: _Pairs) -> tuple[Ints32, Ints32, Ints]:
        """Return all edges by destination: the first edge of each vertex, sources and weights.

        The last vertex is the origin of time: the edge from it to an activity is as long as the
        time until the activity starts.
        """
        last = self.num_activities + len(self._transfers)
        own = np.arange(self.num_activities)
        src = np.concatenate([self._src, pairs[0], np.full(own.size, last)])
        dst = np.concatenate([self._dst, self._entry[pairs[1]], own])
        weight = np.zeros(src.size, dtype=np.int64)
        weight[src == last] = self._activities.start
        in_ptr, in_src, edge = edges_by_vertex(src, dst, last + 1)
        return in_ptr, in_src, weight[edge]
