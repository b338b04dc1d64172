"""Starts and ends of flows per second, on one core, in networks that many GPUs share.

Where a flow ends, another begins on another way, so that as many are on their way all the time.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import nadi
from nadi.simulation.engine_driver import run_tables
from nadi.simulation.flows.flow_state import COUNT, Reach
from nadi.simulation.flows.flow_times import Transfers, run_flows
from nadi.simulation.flows.network_graph import NetworkGraph, network_graph
from nadi.simulation.lowering.task_tables import tables_of
from nadi.simulation.work.program import program_of
from nadi.systems.system_file import system_from

_NODE = 8
_DIMENSIONS = [
    {"topology": "switch", "size": _NODE, "bandwidth": "450 GB/s"},
    {"topology": "switch", "bandwidth": "50 GB/s"},
]
_NVLINK = {"kind": "switch", "name": "nvlink", "ranks": _NODE, "bandwidth": "450 GB/s"}
_FAT_TREE = {
    "kind": "fat-tree", "name": "infiniband", "adapters": _NODE, "bandwidth": "50 GB/s",
    "leaf": 32,
}  # fmt: skip


def graph(num_ranks: int, **network: Any) -> NetworkGraph:
    """Return nodes of eight GPUs, each with an adapter."""
    described = {"network": {"dimensions": _DIMENSIONS, **network}}
    return network_graph(system_from(described, "benchmark").fit(num_ranks))


def ring(num_ranks: int, members: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each rank, and the next of its ring of ``members`` ranks ``stride`` apart."""
    rank = np.arange(num_ranks)
    place = rank // stride % members
    return rank, rank + ((place + 1) % members - place) * stride


def report(what: str, net: NetworkGraph, pairs: np.ndarray, sizes: np.ndarray, reach: int) -> None:
    """Run rounds of flows: each begins where that of the round before has ended.

    ``pairs`` are (rounds, flows, [src, dst, flow]), ``sizes`` bytes (rounds, flows).
    """
    num_flows, total = sizes.shape[1], sizes.size
    src, dst, number = pairs.reshape(total, 3).T
    routes = net.routes(src, dst, number)
    flow, zero = np.arange(total), np.zeros(total, dtype=np.int64)
    after = np.where(flow < num_flows, -1, flow - num_flows)
    transfers = Transfers(flow, sizes.reshape(-1), zero, after, zero)
    one = Transfers(*(column[:1] for column in transfers))
    run_flows(net.capacity, routes, one, reach)  # compiles
    begin = time.process_time()
    _, flows = run_flows(net.capacity, routes, transfers, reach)
    seconds = time.process_time() - begin
    counts = flows.counts
    events, solves = int(counts[COUNT.events]), int(counts[COUNT.round])
    solved = int(counts[COUNT.solved])
    print(
        f"{what}: {num_flows:,} flows, {events:,} starts and ends in {seconds:.2f} s = "
        f"{events / seconds / 1e3:,.0f} k/s; {events / solves:.1f} an instant, "
        f"{solved / events:.1f} rates worked out for each",
        flush=True,
    )


def layers(num_ranks: int, rounds: int, reach: int) -> None:
    """FSDP over 16 nodes, pipeline to the next such group, tensor parallelism in the node.

    All flows of a group begin together and have the same size. Each does the three by turns.
    """
    random = np.random.default_rng(1)
    rank = np.arange(num_ranks)
    kinds = [
        (ring(num_ranks, 16, _NODE), 16 * _NODE, 5_000_000),
        ((rank, (rank + 16 * _NODE) % num_ranks), 16 * _NODE, 2_000_000),
        (ring(num_ranks, _NODE, 1), _NODE, 20_000_000),
    ]
    pairs, sizes = [], []
    for k in range(3 * rounds):
        (src, dst), group, size = kinds[(k // 3 + k) % 3]
        pairs.append(np.stack([src, dst, rank * 0], axis=1))
        of_group = random.integers(size // 2, 2 * size, num_ranks // group)
        sizes.append(np.repeat(of_group, group))
    shape = (rounds, 3 * num_ranks)
    what = f"FSDP, pipeline and TP on {num_ranks:,} GPUs"
    net = graph(num_ranks)
    report(what, net, np.stack(pairs).reshape(*shape, 3), np.stack(sizes).reshape(shape), reach)


def channel_rings(num_ranks: int, rounds: int, reach: int) -> None:
    """Data-parallel rings of 32 nodes, three channels, from leaf to leaf, with hashed ways."""
    random = np.random.default_rng(2)
    rank, to = ring(num_ranks, 32, 8 * _NODE)
    pairs = [np.stack([rank, to, rank * 0 + c], axis=1) for c in range(3 * rounds)]
    sizes = random.integers(1_000_000, 50_000_000, (rounds, 3 * num_ranks))
    net = graph(num_ranks, fabrics=[_NVLINK, _FAT_TREE])
    what = f"Rings over hashed ways on {num_ranks:,} GPUs"
    report(what, net, np.stack(pairs).reshape(rounds, -1, 3), sizes, reach)


def anywhere(num_flows: int, num_ranks: int, rounds: int, reach: int) -> None:
    """Flows between random GPUs, over a fat tree."""
    random = np.random.default_rng(3)
    shape = (rounds, num_flows)
    src = random.integers(0, num_ranks, shape)
    dst = (src + random.integers(1, num_ranks, shape)) % num_ranks
    number = np.broadcast_to(np.arange(num_flows), shape)
    sizes = random.integers(1_000_000, 100_000_000, shape)
    net = graph(num_ranks, fabrics=[_NVLINK, _FAT_TREE])
    what = f"Random pairs of {num_ranks:,} GPUs"
    report(what, net, np.stack([src, dst, number], axis=2), sizes, reach)


def generated_job() -> None:
    """Simulate a generated GPT of 64 ranks, whose collectives and messages share links."""
    system = nadi.load_system("dgx-h100", 64)
    job = nadi.llm_job("gpt3-1.3b", tp=4, pp=4, dp=4, global_batch=16)
    priced, _ = nadi.systems.price_job(job, system)
    traces = [priced.own_trace(rank) for rank in range(64)]
    program = program_of(traces)
    run_tables(tables_of(program, system))  # compiles
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        tables = tables_of(program, system)
        made = time.process_time()
        machine = run_tables(tables)
        seconds.append((time.process_time() - begin, time.process_time() - made))
    counts = machine.flows.counts
    whole, engine = min(seconds)
    begin = time.process_time()
    nadi.simulate(job, system)
    print(
        f"GPT of 64 ranks, {program.num_nodes:,} nodes, {int(counts[COUNT.events]):,} starts and"
        f" ends of flows: {whole:.3f} s, {engine:.3f} of them the engine; nadi.simulate with"
        f" prices and programs {time.process_time() - begin:.3f} s"
    )


def main() -> None:
    reach = Reach.PRUNED
    if sys.argv[1:]:
        reach = {"component": Reach.COMPONENT, "all": Reach.ALL}[sys.argv[1]]
    generated_job()
    layers(32_768, 3, reach)
    channel_rings(32_768, 2, reach)
    anywhere(1_000, 1_024, 20, reach)
    layers(1_024, 20, reach)
    anywhere(10_000, 32_768, 4, reach)
    anywhere(10_000, 1_024, 1, reach)


if __name__ == "__main__":
    main()
