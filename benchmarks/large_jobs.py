"""Jobs of very many ranks, all of whose nodes are simulated: CPU seconds, and peak memory.

Usage: python benchmarks/large_jobs.py [RANKS [NODES]]   (32,768 ranks of 500 nodes)

All ranks of nodes of eight compute and do collectives together in turn. Alike, all of them compute
equally long; skewed, each of 64 kinds of ranks computes for times of its own, so that all nodes of
all ranks have times of their own. Each case runs in a process of its own; 4 GB and 60 s skewed, 1.5
GB and 15 s alike.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import polars as pl
from _measure import peak_memory_mb

import nadi
from nadi.systems.system import Dimension, Network
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Provenance

_NODE, _KINDS = 8, 64
_TYPES = ("all_gather", "reduce_scatter", "all_reduce")


def trace_of(num_nodes: int, seed: int) -> nadi.Trace:
    """Return a chain of computations and collectives."""
    number = np.arange(num_nodes)
    computes = number % 2 == 0
    times = np.random.default_rng(seed).integers(50_000, 150_000, num_nodes)
    types = np.array(_TYPES)[number // 2 % len(_TYPES)]
    nodes = {
        "id": number,
        "name": np.where(computes, "gemm", types),
        "category": np.full(num_nodes, "kernel"),
        "kind": np.where(computes, "COMP", "COMM_COLL"),
        "comm_type": np.where(computes, "none", types),
        "duration": np.where(computes, times, 0),
        "comm_bytes": np.where(computes, -1, 1 << 20),
        "is_cpu": np.zeros(num_nodes, dtype=np.bool_),
    }
    deps = {"src": number[:-1], "dst": number[1:], "kind": np.full(num_nodes - 1, "data")}
    return nadi.Trace(
        nodes=NODES.build(num_nodes, {name: pl.Series(column) for name, column in nodes.items()}),
        deps=DEPS.build(num_nodes - 1, {name: pl.Series(column) for name, column in deps.items()}),
        groups=GROUPS.empty(), issues=ISSUES.empty(), provenance=Provenance("", ()),
    )  # fmt: skip


def run(how: str, num_ranks: int, num_nodes: int) -> None:
    """Simulate one case, after a small one that loads all kernels."""
    kinds = [trace_of(num_nodes, seed) for seed in range(_KINDS if how == "skewed" else 1)]
    for ranks in (16 * _KINDS, num_ranks):
        dimensions = (
            Dimension("switch", _NODE, 450.0, 500.0),
            Dimension("switch", ranks // _NODE, 50.0, 5000.0),
        )
        traces = [kinds[rank * 7919 % len(kinds)] for rank in range(ranks)]
        before = peak_memory_mb()
        begin = time.process_time()
        done = nadi.simulate(traces, nadi.systems.System(Network(dimensions)))
        seconds = time.process_time() - begin
        if ranks == num_ranks:
            print(
                f"{how}: {ranks:,} ranks of {num_nodes} nodes, {done.num_nodes:,} in all, of which"
                f" {done.program.num_nodes:,} simulated: {seconds:.2f} s ="
                f" {done.num_nodes / seconds / 1e6:.2f} M nodes/s, {peak_memory_mb():,.0f} MB at"
                f" peak, {before:,.0f} before",
                flush=True,
            )


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in ("alike", "skewed"):
        run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        return
    given = (sys.argv[1:] + ["32768", "500"][len(sys.argv) - 1 :])[:2]
    for how in ("alike", "skewed"):
        subprocess.run([sys.executable, __file__, how, *given], check=True)


if __name__ == "__main__":
    main()
