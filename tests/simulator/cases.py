"""Jobs and systems for tests of the simulator, as the golden files of ASTRA-sim state them."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import strategies as st

from nadi.files.chakra.et_decode import COLLECTIVES
from nadi.simulation import Simulation
from nadi.simulation.engine_driver import run_tables, simulation_of
from nadi.simulation.lowering.task_tables import tables_of
from nadi.simulation.work.program import program_of
from nadi.systems import AstraSimOptions, System, astra_sim_system
from nadi.trace.attributes import AttributeBuilder
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Provenance, Trace

Node = dict[str, Any]
Jobs = dict[int, list[Node]]  # by rank
_STATED = {
    "comm_bytes": "comm_size", "bytes": "tensor_size", "flops": "num_ops", "src": "comm_src",
    "dst": "comm_dst", "tag": "comm_tag",
}  # fmt: skip
_POINT_TO_POINT = {"COMM_SEND_NODE": "send", "COMM_RECV_NODE": "recv"}


def trace_of(nodes: list[Node]) -> Trace:
    """Make a trace of nodes that are given as Chakra's attributes."""
    row = {node["id"]: number for number, node in enumerate(nodes)}
    names: dict[str, int] = {}
    group = [names.setdefault(n["pg_name"], len(names)) if n.get("pg_name") else -1 for n in nodes]
    comm_type = [
        COLLECTIVES[n["comm_type"]]
        if n["type"] == "COMM_COLL_NODE"
        else _POINT_TO_POINT.get(n["type"], "none")
        for n in nodes
    ]
    table = NODES.build(len(nodes), {
        "id": list(row),
        "name": [f"n{number}" for number in row],
        "kind": [n["type"].removesuffix("_NODE") for n in nodes],
        "category": ["kernel"] * len(nodes),
        "duration": [n.get("duration_micros", 0) * 1000 for n in nodes],
        "is_cpu": [n["is_cpu_op"] for n in nodes],
        "comm_type": comm_type,
        "group": group,
        **{column: [n.get(name, -1) for n in nodes] for column, name in _STATED.items()},
        **{name: [n.get(name, -1) for n in nodes] for name in ("thread", "stream", "start")},
    })  # fmt: skip
    deps = [
        (row[parent], number, kind)
        for kind in ("data", "ctrl")
        for number, n in enumerate(nodes)
        for parent in n.get(f"{kind}_deps", ())
    ]
    columns = (
        dict(zip(("src", "dst", "kind"), zip(*deps, strict=True), strict=True)) if deps else {}
    )
    given = {name: list(values) for name, values in columns.items()}
    attributes = AttributeBuilder()
    for number, n in enumerate(nodes):
        if "comm_priority" in n:
            attributes.add(number, "comm_priority", "int32", n["comm_priority"])
    return Trace(
        nodes=table,
        deps=DEPS.build(len(deps), given) if deps else DEPS.empty(),
        groups=GROUPS.build(len(names), {"name": list(names), "ranks": [[]] * len(names)}),
        issues=ISSUES.empty(),
        provenance=Provenance("", ()),
        given_attributes=attributes.build(),
    )


def system_of(case: dict[str, Any], **changes: Any) -> System:
    """Make the system of a case."""
    options = case.get("cli") or {}
    given = {
        "congestion": case["backend"] == "congestion_aware",
        "queues": int(options.get("num-queues-per-dim", 1)),
        "rendezvous": options.get("rendezvous-protocol") == "true",
        "injection_scale": float(options.get("injection-scale", 1)),
    }
    topologies = case["network"]["topology"]
    known = ["Ring" if topology == "Mesh" else topology for topology in topologies]
    system = astra_sim_system(
        case["network"] | {"topology": known}, case["system"], case.get("remote_memory"),
        case.get("comm_group"), AstraSimOptions(**(given | changes)),
    )  # fmt: skip
    dimensions = tuple(
        msgspec.structs.replace(dimension, topology="mesh") if topology == "Mesh" else dimension
        for dimension, topology in zip(system.network.dimensions, topologies, strict=True)
    )
    network = msgspec.structs.replace(system.network, dimensions=dimensions)
    return msgspec.structs.replace(system, network=network)


def devices_of(case: dict[str, Any]) -> System:
    """Make the system of a case, with threads and streams in order."""
    return msgspec.structs.replace(system_of(case), slots="device")


def num_ranks_of(case: dict[str, Any]) -> int:
    """Give the number of ranks of a case."""
    return math.prod(case["network"]["npus_count"])


def run_each(
    traces: list[Trace], system: System, *, meet: bool = True, flows: bool = True
) -> Simulation:
    """Simulate every rank, none for others; collectives at once, or message by message.

    Without ``flows`` transfers do not slow each other down.
    """
    tables = tables_of(program_of(traces), system)
    return simulation_of(tables, run_tables(tables, meet=meet, flows=flows), len(traces))


def run_nodes(nodes: Jobs, system: System, *, meet: bool = True) -> Simulation:
    """Simulate the nodes of each rank, as above."""
    return run_each([trace_of(nodes[rank]) for rank in sorted(nodes)], system, meet=meet)


def run_devices(case: dict[str, Any], nodes: Jobs, *, meet: bool = True) -> Simulation:
    """Simulate the nodes of each rank on the devices of a case, as above."""
    return run_nodes(nodes, devices_of(case), meet=meet)


def times_of(done: Simulation) -> list[list[tuple[int, int]]]:
    """Give start and end by rank and id."""
    pairs = list(zip(done.start.tolist(), done.end.tolist(), strict=True))
    return [pairs[a:b] for a, b in pairwise(done.program.first.tolist())]


def put_collectives_in_order(nodes: Jobs) -> None:
    """Put all collectives of a rank on one stream, so that none competes with another."""
    for of_rank in nodes.values():
        for node in of_rank:
            if node["type"] == "COMM_COLL_NODE":
                node["stream"] = 30


def collective(number: int, comm_type: str, size: int, **more: Any) -> Node:
    """Give a node that is a collective."""
    code = COLLECTIVES.index(comm_type)
    return {
        "id": number, "type": "COMM_COLL_NODE", "is_cpu_op": False, "comm_type": code,
        "comm_size": size, **more,
    }  # fmt: skip


def compute(number: int, micros: int, **more: Any) -> Node:
    """Give a node that computes."""
    return {
        "id": number, "type": "COMP_NODE", "is_cpu_op": False, "duration_micros": micros, **more
    }  # fmt: skip


_LANES: tuple[Node, ...] = ({}, {}, {"stream": 7}, {"stream": 20}, {"thread": 1}, {"thread": 2})
_COMM_TYPES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@st.composite
def systems(
    draw: st.DrawFn, contended: bool | None = None, *, stacked: bool = False
) -> dict[str, Any]:
    """Draw a network and a system; with ``stacked`` of several dimensions, meshes among them."""
    aware = draw(st.booleans()) if contended is None else contended
    one, several = [[2], [3], [4], [5], [8]], [[2, 3], [4, 2], [2, 2, 2], [3, 1, 2]]
    if stacked:
        counts = draw(st.sampled_from([*several, [4, 4], [5, 3], [3, 3, 2]]))
    else:
        counts = draw(st.sampled_from(one if aware else one + several))
    dims = len(counts)
    power_of_two = all(count & (count - 1) == 0 for count in counts)
    names = ["ring", "direct", "direct2"] + (
        ["halvingDoubling", "doubleBinaryTree"] if power_of_two and 1 not in counts else []
    )
    algorithms = [draw(st.sampled_from(names)) for _ in range(dims)]
    others = [name if name[0] != "h" else "ring" for name in algorithms]
    size = st.integers(1, 2000)
    topology = st.sampled_from(["Ring", "Switch", "FullyConnected"] + ["Mesh"] * stacked)
    system = {
        "endpoint-delay": draw(st.integers(1, 40)),
        "active-chunks-per-dimension": draw(st.integers(1, 3)),
        "preferred-dataset-splits": draw(st.integers(1, 4)),
        "collective-optimization": draw(st.sampled_from(["baseline", "localBWAware"])),
        "local-mem-bw": draw(st.sampled_from([0, 50, 1600])),
        "all-to-all-implementation": others,
    }
    for name in ("all-reduce", "all-gather", "reduce-scatter"):
        system[f"{name}-implementation"] = algorithms
    if draw(st.integers(0, 5)) == 0:
        system |= {"model-shared-bus": 1, "L": 10, "o": 5, "g": 3, "G": 0.001}
    cli = {}
    if draw(st.integers(0, 4)) == 0:
        cli["rendezvous-protocol"] = "true"
    if draw(st.integers(0, 4)) == 0:
        cli["injection-scale"] = draw(st.sampled_from([0.29, 0.5, 3, 7.3]))
    if draw(st.integers(0, 4)) == 0:
        cli["num-queues-per-dim"] = draw(st.integers(2, 3))
    return {
        "backend": "congestion_aware" if aware else "congestion_unaware",
        "network": {
            "topology": [draw(topology) for _ in counts],
            "npus_count": counts,
            "bandwidth": [draw(st.floats(1, 400)) for _ in counts],
            "latency": [float(draw(size)) for _ in counts],
        },
        "system": system,
        "cli": cli,
        "comm_group": None,
    }


@st.composite
def groups_of(draw: st.DrawFn, case: dict[str, Any], num_ranks: int) -> dict[str, list[int]] | None:
    """Draw two groups that are all ranks together, where the algorithms can do with them."""
    names = case["system"]["all-reduce-implementation"]
    has_tree = len(case["network"]["npus_count"]) == 1 and any("Tree" in name for name in names)
    if has_tree or num_ranks < 3:
        return None
    order = draw(st.permutations(range(num_ranks)))
    cut = draw(st.integers(1, num_ranks - 1))
    if any("halving" in name for name in names):
        cut = num_ranks // 2
    return {"a": order[:cut], "b": order[cut:]}


@st.composite
def in_a_lane(draw: st.DrawFn, node: Node, *, is_comm: bool) -> Node:
    """Draw a thread or stream for a node, and whether it computes on the host."""
    is_cpu = not is_comm and draw(st.booleans())
    return node | draw(st.sampled_from(_LANES)) | {"is_cpu_op": is_cpu}


@st.composite
def jobs(draw: st.DrawFn, case: dict[str, Any], longest: int = 6, *, devices: bool = False) -> Jobs:
    """Draw the nodes of each rank, and groups for the case; communication comes in one order.

    For ``devices`` nodes may be on threads and streams, and communication waits for no other.
    """
    num_ranks = num_ranks_of(case)
    nodes: Jobs = {rank: [] for rank in range(num_ranks)}
    last_comm: dict[int, int] = {}
    case["comm_group"] = draw(groups_of(case, num_ranks))

    def add(rank: int, node: Node, is_comm: bool) -> None:
        own = nodes[rank]
        chosen = draw(st.lists(st.sampled_from(own), max_size=2)) if own else []
        deps = {other["id"] for other in chosen}
        if is_comm and rank in last_comm and not devices:
            deps.add(last_comm[rank])
        node = draw(in_a_lane(node, is_comm=is_comm) if devices else st.just(node))
        node = node | {"id": len(own), "data_deps": sorted(deps), "ctrl_deps": []}
        if is_comm:
            last_comm[rank] = node["id"]
        own.append(node)

    for step in range(draw(st.integers(1, longest))):
        kind = draw(st.sampled_from(["compute", "collective", "group", "message"]))
        size = draw(st.integers(64, 3_000_000))
        if kind == "compute":
            for rank in range(num_ranks):
                add(rank, compute(0, draw(st.integers(1, 900))), False)
        elif kind == "message" and num_ranks > 1:
            src, dst = draw(st.permutations(range(num_ranks)))[:2]
            ends = {"comm_src": src, "comm_dst": dst, "comm_tag": step, "comm_size": size}
            for rank, name in ((src, "SEND"), (dst, "RECV")):
                node = {"type": f"COMM_{name}_NODE", "is_cpu_op": False, **ends}
                add(rank, node, True)
        else:
            comm_type = draw(st.sampled_from(_COMM_TYPES))
            one = collective(0, comm_type, size)
            groups = case["comm_group"] if kind == "group" and case["comm_group"] else None
            for rank in range(num_ranks):
                more = {}
                if groups:
                    more = {"pg_name": "a" if rank in groups["a"] else "b"}
                add(rank, one | more, True)
    for rank in range(num_ranks):
        if not nodes[rank]:
            add(rank, compute(0, 1), False)
    return nodes
