"""A job made in code: its ranks and groups, checked while it is written.

Messages and collectives have to match, and no rank may wait in a circle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from types import TracebackType
from typing import NamedTuple

import numpy as np

from nadi.errors import UsageError
from nadi.models.given_values import checked_name, refusal, user_line, whole
from nadi.models.rank_builder import RankBuilder
from nadi.models.rank_program import MESSAGES, WORLD, Group, Operation, Place, RankProgram, trace_of
from nadi.trace.arrays import Ints
from nadi.trace.schema import ISSUES, MATCHES
from nadi.trace.trace import Job, Trace
from nadi.trace.validate import cycle_row

_LARGEST_WORLD = 2**24
_OF_ALL_RANKS = ("", "0")  # names of the group of all ranks in a Chakra trace


class JobBuilder:
    """Make a job in code, for the simulator and for Chakra traces.

    Nodes are added in a ``with`` block, to the ranks in :attr:`ranks`, or once for several ranks
    that do the same. Values are checked by each call; sends, receives and collectives are
    matched at the end of the block. An error states the line of the program that made the node.

    Parameters
    ----------
    world_size
        Number of ranks.

    Raises
    ------
    UsageError
        If there is no rank. At the end of the block: if a rank has no node, a send no receive, a
        member of a group does not take part in a collective, or ranks wait for each other in a
        circle.

    Examples
    --------
    >>> with nadi.JobBuilder(world_size=8) as job:
    ...     for rank in job.ranks:
    ...         gradients = rank.compute("backward", duration="2 ms")
    ...         rank.stream(1).collective("all_reduce", "64 MiB", after=gradients)
    >>> nadi.simulate(job.job, system)
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = whole(world_size, "world_size", _LARGEST_WORLD, least=1)
        self._line = user_line()
        self._groups: dict[str, Group] = {}
        self._programs: list[RankProgram] = []
        self._program_of: dict[int, RankProgram] = {}  # of each rank that has nodes
        self._job: Job | None = None
        self._is_finished = False

    def __repr__(self) -> str:
        return f"<JobBuilder ranks={self.world_size}>"

    @cached_property
    def ranks(self) -> tuple[RankBuilder, ...]:
        """The ranks, in order; for a program for each."""
        return tuple(self._builder((rank,)) for rank in range(self.world_size))

    @cached_property
    def all_ranks(self) -> RankBuilder:
        """All ranks at once: each does what is added to it. They share one Trace."""
        return self._builder(tuple(range(self.world_size)))

    def together(self, ranks: Iterable[int]) -> RankBuilder:
        """Return several ranks at once: each does what is added. They share one Trace.

        Raises
        ------
        UsageError
            If a rank is not of the job, or occurs twice.
        """
        return self._builder(self._checked_ranks(ranks, "ranks"))

    def group(self, name: str, ranks: Iterable[int]) -> Group:
        """Make a process group, for ``group=`` of collectives.

        Parameters
        ----------
        name
            Its name. ASTRA-sim needs a number.
        ranks
            Its members, in any order.

        Raises
        ------
        UsageError
            If the name is taken, or a member is not a rank of the job, or occurs twice.
        """
        if checked_name(name, "name") in _OF_ALL_RANKS:
            raise refusal(f"the name {name!r} means all ranks", "choose another name")
        if name in self._groups:
            raise refusal(f"there is a group {name!r} already", "choose another name")
        self._groups[name] = Group(name, self._checked_ranks(ranks, "ranks"))
        return self._groups[name]

    @property
    def job(self) -> Job:
        """The finished job; ranks that do the same share one Trace, whose rank is -1.

        Its ``matches`` are empty, as of jobs that are read from Chakra traces: the simulator
        matches communication itself.

        Raises
        ------
        UsageError
            Before the end of the ``with`` block.
        """
        if self._job is None:
            raise refusal(
                "the job is not finished", "read it after the with block, if that raised no error"
            )
        return self._job

    def __enter__(self) -> JobBuilder:
        if self._is_finished:
            raise refusal("the job is finished", "make another JobBuilder")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self._is_finished = True
        for program in self._programs:
            program.is_finished = True
        if kind is None:
            self._finish()

    def _finish(self) -> None:
        """Check the whole job, and make its traces."""
        for rank in range(self.world_size):
            if rank not in self._program_of or not self._program_of[rank].operations:
                remedy = "give it one, or make world_size smaller"
                raise refusal(f"rank {rank} has no node", remedy, self._line)
        used = list(dict.fromkeys(self._program_of.values()))
        taken = sorted(set().union(*(program.tags for program in used)))
        for program in used:
            program.give_tags(taken)
        check_communication(used, self._groups, self.world_size)
        of_program: dict[RankProgram, Trace] = {}
        alike: dict[object, list[RankProgram]] = {}
        for program in used:
            alike.setdefault(program.content(), []).append(program)
        for programs in alike.values():
            ranks = [rank for program in programs for rank in program.ranks]
            own = ranks[0] if len(ranks) == 1 else -1
            trace = trace_of(programs[0], self._groups, own, self.world_size)
            of_program |= dict.fromkeys(programs, trace)
        traces = tuple(of_program[self._program_of[r]] for r in range(self.world_size))
        self._job = Job(traces, MATCHES.empty(), ISSUES.empty())

    def _builder(self, ranks: tuple[int, ...]) -> RankBuilder:
        program = RankProgram(ranks)
        program.is_finished = self._is_finished
        self._programs.append(program)
        return RankBuilder(program, Place(stream=0), self._groups, self.world_size, self._claim)

    def _claim(self, program: RankProgram) -> None:
        """Make ranks those of a program, before it gets its first node."""
        if program.operations:
            return
        for rank in program.ranks:
            other = self._program_of.get(rank, program)
            if other.operations:  # and not a first node that was refused
                raise refusal(
                    f"rank {rank} has another program, which begins at {other.lines[0]}",
                    "write the nodes of a rank either by itself or together with others",
                )
        self._program_of |= dict.fromkeys(program.ranks, program)

    def _checked_ranks(self, ranks: Iterable[int], what: str) -> tuple[int, ...]:
        if isinstance(ranks, (str, bytes)) or not isinstance(ranks, Iterable):
            raise refusal(f"{what} is {ranks!r}; it must be numbers", f"write {what}=[0, 1]")
        found = tuple(sorted(whole(rank, "a rank") for rank in ranks))
        if not found:
            raise refusal(f"{what} is empty", "name at least one rank")
        if found[-1] >= self.world_size:
            raise refusal(
                f"there is no rank {found[-1]}: the job has {self.world_size}, counted from 0",
                "name other ranks, or make world_size larger",
            )
        if len(set(found)) < len(found):
            raise refusal(f"{what} has a rank twice", "name each once")
        return found


_TOLD = 6  # nodes of a circle


class _Copy(NamedTuple):
    """The nodes of a program as one rank runs them, or all of its ranks if they are alike."""

    program: RankProgram
    rank: int
    first: int  # its first node among those of all copies


class _Node(NamedTuple):
    copy: _Copy
    row: int

    @property
    def operation(self) -> Operation:
        return self.copy.program.operations[self.row]

    @property
    def number(self) -> int:
        """Its number among the nodes of all copies."""
        return self.copy.first + self.row

    def refusal(self, what: str, remedy: str) -> UsageError:
        return refusal(what, remedy, self.copy.program.lines[self.row])

    def told(self) -> str:
        """Describe it, with its line."""
        line = self.copy.program.lines[self.row]
        return f"rank {self.copy.rank} {self.operation.name!r} ({line})"


def check_communication(
    programs: Sequence[RankProgram], groups: Mapping[str, Group], world_size: int
) -> None:
    """Raise UsageError, with the line of a node, if the job could not run to its end.

    A send is taken not to wait for its receive. O(nodes + members of groups that are used), with
    the nodes of each rank that exchanges messages, and once those of ranks that only share
    collectives.
    """
    copies = []
    first = 0
    for program in programs:
        has_messages = any(one.kind in MESSAGES for one in program.operations)
        for rank in program.ranks if has_messages else program.ranks[:1]:
            copies.append(_Copy(program, rank, first))
            first += len(program.operations)
    pairs = _matched_messages(copies)
    vertex = np.arange(first)
    for same in _matched_collectives(copies, programs, groups, world_size):
        vertex[[node.number for node in same]] = same[0].number
    _check_circles(copies, pairs, vertex)


# messages


def _matched_messages(copies: Sequence[_Copy]) -> list[tuple[_Node, _Node]]:
    """Pair sends with receives: in their order, for the same ranks and tag."""
    sends, receives = defaultdict(list), defaultdict(list)
    for copy in copies:
        for row, one in enumerate(copy.program.operations):
            if one.kind == "COMM_SEND":
                sends[copy.rank, one.dst, one.tag].append(_Node(copy, row))
            elif one.kind == "COMM_RECV":
                receives[one.src, copy.rank, one.tag].append(_Node(copy, row))
    pairs = []
    for key in dict.fromkeys((*sends, *receives)):
        for send, receive in zip_longest(sends[key], receives[key]):
            if send is None or receive is None:
                raise _unmatched(send or receive, key, receives if send else sends)
            if send.operation.comm_bytes != receive.operation.comm_bytes:
                raise send.refusal(
                    f"{send.operation.comm_bytes} bytes are sent, but {receive.told()} receives "
                    f"{receive.operation.comm_bytes}", "make both sizes equal",
                )  # fmt: skip
            pairs.append((send, receive))
    return pairs


def _unmatched(
    node: _Node, key: tuple[int, int, int], others: Mapping[tuple[int, int, int], list[_Node]]
) -> UsageError:
    """Return the error about a send without a receive, or a receive without a send.

    ``others`` has those of the other direction.
    """
    src, dst, tag = key
    one = node.operation
    size = one.comm_bytes
    near = [nodes[0] for (a, b, other), nodes in others.items()
            if (a, b) == (src, dst) and other != tag and nodes]  # fmt: skip
    also = f"; {near[0].told()} has tag {near[0].operation.tag}" if near else ""
    if one.kind == "COMM_SEND":
        return node.refusal(
            f"the send of {size} bytes from rank {src} to rank {dst} with tag {tag} has no "
            f"receive{also}", f"add to rank {dst}: rank.recv({src}, {size}), or correct the tag",
        )  # fmt: skip
    return node.refusal(
        f"the receive of {size} bytes from rank {src} on rank {dst} with tag {tag} has no "
        f"send{also}", f"add to rank {src}: rank.send({dst}, {size}), or correct the tag",
    )  # fmt: skip


# collectives


def _matched_collectives(
    copies: Sequence[_Copy],
    programs: Sequence[RankProgram],
    groups: Mapping[str, Group],
    world_size: int,
) -> list[list[_Node]]:
    """Return the nodes of each collective: the k-th of each member of a group.

    A group of all ranks is the group of all ranks, whatever its name, as simulators have it.
    """
    key = {name: WORLD if len(group.ranks) == world_size else name
           for name, group in groups.items()} | {WORLD: WORLD}  # fmt: skip
    of_program: dict[RankProgram, list[_Copy]] = defaultdict(list)
    for copy in copies:
        of_program[copy.program].append(copy)
    program_of = {rank: program for program in programs for rank in program.ranks}
    rows: dict[RankProgram, dict[str, list[int]]] = {}
    for program in programs:
        rows[program] = defaultdict(list)
        for row, one in enumerate(program.operations):
            if one.kind == "COMM_COLL":
                rows[program][key[one.group]].append(row)
    found: list[list[_Node]] = []
    for name in dict.fromkeys(name for of_groups in rows.values() for name in of_groups):
        ranks = range(world_size) if name == WORLD else groups[name].ranks
        taking = list(dict.fromkeys(program_of[rank] for rank in ranks))
        for same in zip_longest(*(rows[program].get(name, ()) for program in taking)):
            members = list(zip(taking, same, strict=True))
            _check_alike(members, name, of_program)
            found.append([_Node(c, row) for program, row in members for c in of_program[program]])
    return found


def _check_alike(
    members: Sequence[tuple[RankProgram, int | None]],
    group: str,
    copies: Mapping[RankProgram, list[_Copy]],
) -> None:
    """Raise UsageError unless all programs of a group's members have the same collective."""
    where = f"group {group!r}" if group != WORLD else "the group of all ranks"
    stated = [_Node(copies[program][0], row) for program, row in members if row is not None]
    first = stated[0]
    one = first.operation
    for program, row in members:
        if row is None:
            raise first.refusal(
                f"{_told(one)} in {where} lacks rank {program.ranks[0]}, which has fewer "
                "collectives in it", f"add it to rank {program.ranks[0]}, or remove it here",
            )  # fmt: skip
        other = program.operations[row]
        if (other.comm_type, other.comm_bytes, other.src, other.dst) != (
            one.comm_type, one.comm_bytes, one.src, one.dst,
        ):  # fmt: skip
            raise _Node(copies[program][0], row).refusal(
                f"{_told(other)} in {where} meets {_told(one)} of {first.told()}",
                "all members must run the same collectives in the same order",
            )


def _told(one: Operation) -> str:
    root = max(one.src, one.dst)
    return f"{one.comm_type} of {one.comm_bytes} bytes" + (f", root {root}," if root >= 0 else "")


# circles


def _check_circles(
    copies: Sequence[_Copy], pairs: Sequence[tuple[_Node, _Node]], vertex: Ints
) -> None:
    """Raise UsageError if ranks wait for each other in a circle.

    ``vertex`` is int64, shape (nodes of all copies,): equal for the parts of a collective.
    """
    src = [c.first + one for c in copies for waits in c.program.waits for one in waits]
    dst = [c.first + row for c in copies for row, waits in enumerate(c.program.waits)
           for _ in waits]  # fmt: skip
    src += [send.number for send, _ in pairs]
    dst += [receive.number for _, receive in pairs]
    sources, targets = np.array(src, dtype=np.int64), np.array(dst, dtype=np.int64)
    on_circle = cycle_row(vertex.size, vertex[sources], vertex[targets])
    if on_circle < 0:
        return
    before: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one, other in zip(src, dst, strict=True):
        before[int(vertex[other])].append((one, other))
    edges = _circle(before, vertex, on_circle)
    nodes = [_node(copies, one) for edge in edges for one in edge[::-1]]
    told = list(dict.fromkeys(
        node.told() for node in nodes if node.operation.kind.startswith("COMM")
    ))  # fmt: skip
    first = next(node for node in nodes if node.operation.kind.startswith("COMM"))
    more = "" if len(told) <= _TOLD else f", and {len(told) - _TOLD} more"
    raise first.refusal(
        f"ranks wait for each other in a circle: {', '.join(told[:_TOLD])}{more}",
        "let all ranks run their collectives in one order, and send before they receive",
    )


def _circle(
    before: Mapping[int, list[tuple[int, int]]], vertex: Ints, start: int
) -> list[tuple[int, int]]:
    """Return the waits of a circle through a vertex: pairs of a node and one that waits for it."""
    came: dict[int, tuple[int, tuple[int, int]]] = {}
    found = [start]
    for at in found:
        for edge in before.get(at, ()):
            source = int(vertex[edge[0]])
            if source not in came:
                came[source] = at, edge
                found.append(source)
    at, edge = came[start]
    way = [edge]
    while at != start:
        at, edge = came[at]
        way.append(edge)
    return way[::-1]


def _node(copies: Sequence[_Copy], number: int) -> _Node:
    copy = max((c for c in copies if c.first <= number), key=lambda c: c.first)
    return _Node(copy, number - copy.first)
