"""Checks of a whole job: messages and collectives match, and no rank waits in a circle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from nadi.errors import UsageError
from nadi.models.rank_program import MESSAGES, WORLD, Group, Operation, RankProgram
from nadi.models.user_lines import refusal
from nadi.trace.arrays import Ints
from nadi.trace.validate import cycle_row

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
