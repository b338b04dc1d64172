"""What a simulator does with Chakra traces, in plain Python: slow, strict, nothing of Nadi's.

:class:`Feeder` hands out nodes as Chakra's feeder does: of those whose data dependencies have
ended the one with the lowest id; dependencies on control do not count. What makes that feeder
hang, crash or read a shorter file is an error here. :func:`replay` plays all ranks with
ASTRA-sim's slots: a rank runs one node of the processor, one of computation and one of
communication at a time, and receives beside these. Communication takes as long as measured,
from the moment when the last of its members has begun it.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.reference.chakra_messages import attribute_value, read_messages

COMP, SEND, RECV, COLL = 4, 5, 6, 7
BROADCAST = 5
PLAYED = {0, 2, BROADCAST, 6, 7}  # collectives that do not end ASTRA-sim


class FeederError(Exception):
    """What a simulator could not play."""


@dataclass
class FeederNode:
    id: int
    name: str
    type: int
    micros: int
    data_deps: list[int]
    attrs: dict[str, Any]

    @property
    def nanoseconds(self) -> int:
        """As ASTRA-sim has it: what takes no time takes a nanosecond."""
        return self.micros * 1000 or 1


def read_nodes(path: Path) -> list[FeederNode]:
    """Read a file with the protobuf package, and refuse what is not exactly right."""
    _, messages = read_messages(path.read_bytes())
    nodes = []
    for message in messages:
        attrs = {attr.name: attribute_value(attr)[1] for attr in message.attr}
        if len(attrs) < len(message.attr):
            raise FeederError(f"{path}: node {message.id} has an attribute twice")
        if list(message.ctrl_deps):
            raise FeederError(f"{path}: node {message.id} waits for control, which not all count")
        nodes.append(
            FeederNode(message.id, message.name, message.type, message.duration_micros,
                       list(message.data_deps), attrs)
        )  # fmt: skip
    return nodes


class Feeder:
    """The nodes of a rank, each handed out when all that it depends on has ended."""

    def __init__(self, nodes: Iterable[FeederNode]) -> None:
        self.nodes: dict[int, FeederNode] = {}
        previous = -1
        for node in nodes:
            if node.id in self.nodes:
                raise FeederError(f"id {node.id} stands twice")
            if node.id < previous:
                raise FeederError(f"id {node.id} comes after {previous}")
            self.nodes[node.id] = node
            previous = node.id
        self.missing: dict[int, int] = {}
        self.children: dict[int, list[int]] = defaultdict(list)
        self.ready: list[int] = []
        for node in self.nodes.values():
            if len(set(node.data_deps)) < len(node.data_deps):
                raise FeederError(f"node {node.id} has a dependency twice")
            for other in node.data_deps:
                if other not in self.nodes:
                    raise FeederError(f"node {node.id} depends on {other}, which is not there")
                self.children[other].append(node.id)
            self.missing[node.id] = len(node.data_deps)
            if not node.data_deps:
                heapq.heappush(self.ready, node.id)

    def take(self) -> FeederNode | None:
        """Hand out the ready node with the lowest id."""
        return self.nodes[heapq.heappop(self.ready)] if self.ready else None

    def put_back(self, node: FeederNode) -> None:
        heapq.heappush(self.ready, node.id)

    def end(self, node: FeederNode) -> None:
        """Note that a node has ended."""
        for child in self.children[node.id]:
            self.missing[child] -= 1
            if self.missing[child] == 0:
                heapq.heappush(self.ready, child)
        del self.missing[node.id]

    def drain(self) -> list[FeederNode]:
        """Hand out and end all nodes, one after the other."""
        done = []
        while (node := self.take()) is not None:
            self.end(node)
            done.append(node)
        if self.missing:
            raise FeederError(f"{len(self.missing)} nodes wait for each other in a circle")
        return done


def read_job(folder: Path) -> tuple[list[list[FeederNode]], dict[str, list[int]]]:
    """Read the files of all ranks, and check what each node must say."""
    groups = json.loads((folder / "comm_group.json").read_text())
    files = sorted(folder.glob("*.et"), key=lambda file: int(file.name.split(".")[-2]))
    assert [int(file.name.split(".")[-2]) for file in files] == list(range(len(files)))
    ranks = [read_nodes(file) for file in files]
    for members in groups.values():
        assert members == sorted(set(members))
        assert set(members) <= set(range(len(ranks)))
    for rank, nodes in enumerate(ranks):
        for node in nodes:
            check_node(node, rank, groups)
    check_collectives(ranks, groups)
    check_pairs(ranks)
    return ranks, groups


def check_node(node: FeederNode, rank: int, groups: dict[str, list[int]]) -> None:
    """Check that a node has what ASTRA-sim reads of it."""
    attrs = node.attrs
    assert node.type in (COMP, SEND, RECV, COLL), node
    assert isinstance(attrs["is_cpu_op"], bool)
    if node.type == COMP:
        assert not any(name.startswith(("comm_", "pg_")) for name in attrs), node
        return
    assert attrs["is_cpu_op"] is False, node  # else it is computation to ASTRA-sim
    assert attrs["comm_size"] > 0
    if node.type == COLL:
        assert attrs["comm_type"] in PLAYED, node
        assert rank in groups[attrs["pg_name"]], node
    else:
        own, other = ("comm_src", "comm_dst")[:: 1 if node.type == SEND else -1]
        assert attrs[own] == rank != attrs[other]
        assert 0 <= attrs["comm_tag"] < 500_000_000


def check_collectives(ranks: list[list[FeederNode]], groups: dict[str, list[int]]) -> None:
    """Check that the members of each group have the same collectives, in order of id."""
    sequences: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for rank, nodes in enumerate(ranks):
        for node in nodes:
            if node.type == COLL:
                of_rank = sequences[node.attrs["pg_name"]][rank]
                of_rank.append((node.attrs["comm_type"], node.attrs["comm_size"]))
    for name, by_rank in sequences.items():
        assert sorted(by_rank) == groups[name]
        assert len({tuple(sequence) for sequence in by_rank.values()}) == 1, name


def check_pairs(ranks: list[list[FeederNode]]) -> None:
    """Check that every send has one receive of the same ranks, tag and size, and it one send."""
    names = ("comm_src", "comm_dst", "comm_tag", "comm_size")
    ends: dict[int, list[tuple[int, ...]]] = {SEND: [], RECV: []}
    for nodes in ranks:
        for node in nodes:
            if node.type in ends:
                ends[node.type].append(tuple(node.attrs[name] for name in names))
    assert sorted(ends[SEND]) == sorted(ends[RECV])
    assert len(set(ends[SEND])) == len(ends[SEND])


@dataclass
class Played:
    """When each node of each rank began and ended, in ns; the end of it all."""

    start: list[dict[int, int]]
    end: list[dict[int, int]]

    @property
    def makespan(self) -> int:
        return max(max(ends.values(), default=0) for ends in self.end)


def slot_of(node: FeederNode) -> str:
    """Give the slot that a node takes; a receive takes none."""
    if node.attrs["is_cpu_op"]:
        return "cpu"
    return {COMP: "gpu", RECV: ""}.get(node.type, "comm")


class _Player:
    def __init__(self, ranks: list[list[FeederNode]], groups: dict[str, list[int]],
                 *, slots: bool) -> None:  # fmt: skip
        self.feeders = [Feeder(nodes) for nodes in ranks]
        self.groups, self.slots = groups, slots
        self.busy: list[set[str]] = [set() for _ in ranks]
        self.played = Played([{} for _ in ranks], [{} for _ in ranks])
        self.events: list[tuple[int, int, int, int]] = []  # time, sequence, rank, id
        self.entered: dict[Any, list[tuple[int, FeederNode]]] = defaultdict(list)
        self.count: dict[tuple[int, str], int] = defaultdict(int)
        self.arrived: dict[Any, tuple[int, int]] = {}

    def end_at(self, time: int, rank: int, node: FeederNode) -> None:
        heapq.heappush(self.events, (time, len(self.events) + self.num_done, rank, node.id))

    num_done = 0

    def issue(self, time: int, rank: int) -> None:
        waiting = []
        while (node := self.feeders[rank].take()) is not None:
            slot = slot_of(node) if self.slots else ""
            if slot in self.busy[rank]:
                waiting.append(node)
                continue
            if slot:
                self.busy[rank].add(slot)
            self.played.start[rank][node.id] = time
            self.begin(time, rank, node)
        for node in waiting:
            self.feeders[rank].put_back(node)

    def begin(self, time: int, rank: int, node: FeederNode) -> None:
        # a broadcast is not played either, but takes the time that it took
        if node.type == COMP or node.attrs.get("comm_type") == BROADCAST:
            self.end_at(time + node.nanoseconds, rank, node)
            return
        if node.type == COLL:
            group = node.attrs["pg_name"]
            key: Any = (group, self.count[rank, group])
            self.count[rank, group] += 1
            size = len(self.groups[group])
        else:
            key, size = tuple(node.attrs[n] for n in ("comm_src", "comm_dst", "comm_tag")), 2
        self.entered[key].append((rank, node))
        if len(self.entered[key]) == size:
            for member, other in self.entered.pop(key):
                self.end_at(time + other.attrs["measured_transfer_ns"], member, other)

    def play(self) -> Played:
        for rank in range(len(self.feeders)):
            self.issue(0, rank)
        while self.events:
            time, _, rank, number = heapq.heappop(self.events)
            self.num_done += 1
            node = self.feeders[rank].nodes[number]
            self.busy[rank].discard(slot_of(node))
            self.played.end[rank][number] = time
            self.feeders[rank].end(node)
            self.issue(time, rank)
        left = {rank: len(f.missing) for rank, f in enumerate(self.feeders) if f.missing}
        if left:
            raise FeederError(f"ranks stand still with nodes left: {left}")
        return self.played


def replay(
    ranks: list[list[FeederNode]], groups: dict[str, list[int]], *, slots: bool = True
) -> Played:
    """Play all ranks until nothing is left; ``slots=False`` runs any number of nodes at once."""
    return _Player(ranks, groups, slots=slots).play()
