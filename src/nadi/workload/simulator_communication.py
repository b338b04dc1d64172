"""Communication as ASTRA-sim plays it: types that it knows, and equal sizes at all members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nadi.graph.event_graph import EventGraph
from nadi.model.ancestors import nearest
from nadi.model.arrays import Ints
from nadi.model.issues import IssueLog

__all__ = ["Communication", "Groups", "Transfer", "communication_ops", "find_communication"]

# by number: the name as recorded, and the members as positions among the ranks of the job
Groups = dict[int, tuple[str, tuple[int, ...]]]
# what ASTRA-sim refuses to play, and what takes as long on a ring: to gather is to collect as
# many bytes at one rank as all_gather does at each; to scatter and to reduce are the same way back
_PLAYED_AS = {
    "reduce": "reduce_scatter",
    "gather": "all_gather",
    "scatter": "reduce_scatter",
    "barrier": "all_reduce",
}
_NOT_PLAYED = ("none", "other", "send", "recv")
_BARRIER_BYTES = 4
_SMALLEST_GATHER = 64  # bytes: it never ends one that is smaller than the number of its splits
_PLAYED_ALONE = "broadcast"  # ASTRA-sim lets it take its measured time, and waits for nobody
_FIRST_GROUP = 1  # 0 stands for all ranks, whatever comm_group.json says


@dataclass(frozen=True)
class Transfer:
    """One collective, or one send with its receive.

    Attributes
    ----------
    ops
        Operation of the event graph of each member, in order of rank; of a send with its
        receive the sender's first.
    ranks
        Their ranks, as positions among the ranks of the job.
    comm_type
        As it is to be written; ``send`` for a send with its receive.
    recorded_type
        As it was recorded.
    size
        Bytes, the same for all members.
    group
        Its number in ``comm_group.json``; -1 for a send with its receive.
    tag
        Of a send with its receive, and no other between the two has it; else -1.
    entered
        ns since the job's origin: when the last of its members began, as measured.
    """

    ops: tuple[int, ...]
    ranks: tuple[int, ...]
    comm_type: str
    recorded_type: str
    size: int
    group: int
    tag: int
    entered: int


@dataclass(frozen=True)
class Communication:
    """What ranks send each other.

    Attributes
    ----------
    transfers
        In the order in which their last members entered them.
    groups
        What stands in ``comm_group.json``, and more.
    num_alone
        Operations whose other members are not here: each is a transfer of its own.
    """

    transfers: tuple[Transfer, ...]
    groups: Groups
    num_alone: int


def communication_ops(graph: EventGraph) -> Ints:
    """List the operations that are communication, none inside another; ascending."""
    is_comm = graph.gather("kind").is_in(["COMM_COLL", "COMM_SEND", "COMM_RECV"]).to_numpy()
    ops = np.flatnonzero(is_comm)
    return ops[nearest(graph.op_parent[ops], graph.op_parent, is_comm) < 0]


def find_communication(
    graph: EventGraph, comm_ops: Ints, log: IssueLog, played: Collection[str] = ()
) -> Communication:
    """Describe all communication. O(matches).

    What cannot be played with others, as these are not here or do something else, is played
    for its measured time.

    Parameters
    ----------
    comm_ops
        int64: from :func:`communication_ops`.
    played
        Types that are played as they were recorded, with any size; by default those of
        ASTRA-sim. A broadcast that is not among them is played as an all_gather of parts.
    log
        Takes note of what is written otherwise than recorded.
    """
    position = {rank: number for number, rank in enumerate(graph.job.ranks)}
    op_of_row = [_ops_of_rows(graph, trace, comm_ops) for trace in range(len(position))]
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


def _ops_of_rows(graph: EventGraph, trace: int, comm_ops: Ints) -> dict[int, int]:
    ops = comm_ops[graph.op_trace[comm_ops] == trace]
    return dict(zip(graph.op_row[ops].tolist(), ops.tolist(), strict=True))


class _Member(NamedTuple):
    rank: int  # position among the ranks of the job
    row: int
    op: int


class _Finder:
    """Transfers as they are found, and what has to be said about them."""

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
        """Add an operation that nobody else takes part in."""
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
        if recorded == "broadcast" and self._played:
            return "all_gather"
        return _PLAYED_AS.get(recorded, recorded)

    def _number(self, members: list[_Member]) -> int:
        """Give the number of the members' group, a new one if it is the first time."""
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
        """Give all that was added, and note what was changed."""
        log.add(
            "export.comm-type", "info", self._replaced.total(),
            "communication that is not played itself is written as what takes as long: "
            + ", ".join(f"{name} as {self._stand_in(name)}" for name in sorted(self._replaced)),
        )  # fmt: skip
        log.add(
            "export.comm-size-unequal", "info", self._unequal,
            "members of a collective state different sizes: the largest is written for all, as "
            "members of different sizes would never meet",
        )  # fmt: skip
        log.add(
            "export.comm-size-small", "info", self._small,
            f"all_gathers are of under {_SMALLEST_GATHER} bytes, which ASTRA-sim may never end: "
            f"{_SMALLEST_GATHER} are written",
        )  # fmt: skip
        log.add(
            "export.comm-size-unknown", "warning", self._unknown,
            "communication operations whose size no member states: only their latency counts",
            "record with shapes (record_shapes=True)",
        )  # fmt: skip
        transfers = tuple(sorted(self._transfers, key=lambda transfer: transfer.entered))
        groups = {number: group for group, number in self._groups.items()}
        return Communication(transfers, groups, self._num_alone)
