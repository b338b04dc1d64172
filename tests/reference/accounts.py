"""What each rank of a simulated job did with its time, moment by moment, in plain Python.

Nodes are given as Chakra's attributes, with the times at which a simulation had each begin and
end. Who met whom is found anew: the k-th collective of every member of a group, and the k-th
send and receive of the same ranks, size and tag. Then, between any two moments at which
something of a rank begins or ends, all its nodes are looked at.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

__all__ = ["account", "live_bytes"]

Node = dict[str, Any]
Times = dict[int, tuple[int, int]]  # start and end by id
_COMMUNICATION = ("COMM_COLL_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE")
_MEMORY = ("MEM_LOAD_NODE", "MEM_STORE_NODE")
# what counts first, if several things happen at a time
_ORDER = (
    "computing", "transferring", "accessing", "hosting", "other", "awaiting_members",
    "awaiting_sender", "awaiting_receiver", "awaiting_memory",
)  # fmt: skip


def account(
    nodes: dict[int, list[Node]],
    times: dict[int, Times],
    *,
    rendezvous: bool = False,
    service: int | None = None,
) -> dict[int, dict[str, int]]:
    """Add up the time of each rank, by column of ``schema.RANK_TIMES``.

    Parameters
    ----------
    nodes
        Of each rank.
    times
        Of each rank's nodes.
    rendezvous
        Whether sends wait for their receives.
    service
        How long remote memory serves an access of 0 bytes, if it serves one after the other.
    """
    waits = _waits(nodes, times, rendezvous=rendezvous, service=service)
    return {rank: _of_rank(nodes[rank], times[rank], waits[rank]) for rank in nodes}


def _waits(
    nodes: dict[int, list[Node]], times: dict[int, Times], *, rendezvous: bool, service: int | None
) -> dict[int, dict[int, tuple[int, str]]]:
    """Give until when a node waits at most, and what for, by rank and id."""
    waits: dict[int, dict[int, tuple[int, str]]] = {rank: {} for rank in nodes}
    meetings, sends, receives = defaultdict(list), defaultdict(list), defaultdict(list)
    for rank, own in nodes.items():
        count: dict[str, int] = defaultdict(int)
        for node in sorted(own, key=lambda node: times[rank][node["id"]]):
            name, kind = node["id"], node["type"]
            if kind == "COMM_COLL_NODE":
                group = node.get("pg_name", "")
                meetings[group, count[group]].append((rank, name))
                count[group] += 1
            elif kind in _COMMUNICATION:
                key = tuple(node[f"comm_{part}"] for part in ("src", "dst", "tag", "size"))
                (sends if kind == "COMM_SEND_NODE" else receives)[key].append((rank, name))
            elif kind in _MEMORY and service is not None:
                waits[rank][name] = (times[rank][name][1] - service, "awaiting_memory")
    for members in meetings.values():
        last = max(times[rank][name][0] for rank, name in members)
        for rank, name in members:
            waits[rank][name] = (last, "awaiting_members")
    for key, sent in sends.items():
        for (src, send), (dst, receive) in zip(sent, receives[key], strict=False):
            waits[dst][receive] = (times[src][send][0], "awaiting_sender")
            if rendezvous:
                waits[src][send] = (times[dst][receive][0], "awaiting_receiver")
    return waits


def _of_rank(nodes: list[Node], times: Times, waits: dict[int, tuple[int, str]]) -> dict[str, int]:
    ends = {moment for pair in times.values() for moment in pair}
    # what happens elsewhere ends waiting, if the rank is still there
    ends |= {until for until, _ in waits.values() if 0 <= until <= max(ends)}
    moments = sorted({0, *ends})
    sums: dict[str, int] = defaultdict(int)
    for now, then in pairwise(moments):
        length = then - now
        states, communicating, blocked = set(), False, False
        for node in nodes:
            start, end = times[node["id"]]
            parents = [*node.get("data_deps", ()), *node.get("ctrl_deps", ())]
            ready = max((times[parent][1] for parent in parents), default=0)
            blocked |= ready <= now < start
            if start <= now < end:
                states.add(_state(node, now, waits))
                communicating |= node["type"] in _COMMUNICATION
        sums[next((state for state in _ORDER if state in states), "idle")] += length
        sums["host"] += length * ("hosting" in states)
        sums["communicating"] += length * communicating
        sums["exposed"] += length * (communicating and "computing" not in states)
        sums["overlapped"] += length * (communicating and "computing" in states)
        sums["blocked"] += length * blocked
    sums["finish"] = moments[-1]
    return dict(sums)


def _state(node: Node, now: int, waits: dict[int, tuple[int, str]]) -> str:
    kind = node["type"]
    until, cause = waits.get(node["id"], (0, ""))
    if now < until:
        return cause
    if kind in _COMMUNICATION:
        return "transferring"
    if kind in _MEMORY:
        return "accessing"
    if node["is_cpu_op"]:
        return "hosting"
    return "computing" if kind == "COMP_NODE" else "other"


def live_bytes(
    uses: list[tuple[int, int, bool, int]], times: dict[int, tuple[int, int]]
) -> tuple[int, int]:
    """Give the most that live storages of one device take, and when that is first so.

    Parameters
    ----------
    uses
        Node, storage, whether it is an output of the node, and up to which byte the tensor
        reaches; a node may name a storage several times.
    times
        Start and end of each node.
    """
    lives: dict[int, list[list[int]]] = defaultdict(list)  # begin, end, size
    of_node = defaultdict(list)
    for node, *use in uses:
        of_node[node].append(use)
    for node in sorted(of_node, key=lambda node: (times[node][0], node)):
        own = of_node[node]
        given = {storage for storage, is_output, _ in own if not is_output}
        for storage in sorted({storage for storage, *_ in own}):
            start, end = times[node]
            size = max(size for s, _, size in own if s == storage)
            is_over = not lives[storage] or lives[storage][-1][1] <= start
            if storage not in given and is_over:
                lives[storage].append([start, end, size])
            elif not lives[storage]:
                lives[storage].append([0, end, size])
            last = lives[storage][-1]
            last[1], last[2] = max(last[1], end), max(last[2], size)
    every = [life for of_storage in lives.values() for life in of_storage]
    best, when = 0, 0
    for now in sorted({begin for begin, *_ in every}):
        live = sum(size for begin, end, size in every if begin <= now < end)
        if live > best:
            best, when = live, now
    return best, when
