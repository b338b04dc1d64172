"""Small recordings of a known schedule, and what becomes of them after changes."""

from __future__ import annotations

from pathlib import Path

import nadi
from nadi.graph.event_graph import EventGraph
from tests.conftest import PairWriter

__all__ = ["ALL_REDUCE", "ends", "kernel", "launch", "ranks_that_meet", "spans", "three_kernels"]

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def launch(pair: PairWriter, number: int, start: float, duration: float, **more: object) -> None:
    """Add a call that launches, in us."""
    pair.event("cudaLaunchKernel", start, duration, "cuda_runtime", correlation=number, **more)


def kernel(
    pair: PairWriter, number: int, name: str, start: float, end: float, stream: int = 7,
    device: int = 0, **more: object,
) -> None:  # fmt: skip
    """Add the work of a call."""
    pair.event(name, start, end - start, "kernel", pid=device, tid=stream, stream=stream,
               device=device, correlation=number, **more)  # fmt: skip


def three_kernels(pair: PairWriter) -> EventGraph:
    """Launch three kernels onto one stream from an operator of 100 us.

    A launch onto an idle stream takes 3 us, as where little is known, so that 3 before k1
    are a delay; between work that was queued in good time are 2 and 5 us, so that 3.5 are
    usual, and 1.5 before k3 are a delay.
    """
    pair.op("step", 0, 100)
    for number, start in ((1, 10), (2, 20), (3, 30)):
        launch(pair, number, start, 4)
    kernel(pair, 1, "k1", 20, 60)
    kernel(pair, 2, "k2", 62, 90)
    kernel(pair, 3, "k3", 95, 110)
    return nadi.build_graph(nadi.load_job(*pair.write()))


def ranks_that_meet(folder: Path, work: list[float]) -> EventGraph:
    """Let each rank work for a while, in us, and then launch an all_reduce of 10 us and 4 kB.

    The call takes 1 us and the kernel begins 2 us after its start; the device is waited
    for 1 us longer than it works.
    """
    end = max(work) + 2 + 10
    for rank, own in enumerate(work):
        pair = PairWriter(folder)
        pair.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": len(work),
            "pg_config": [{"pg_name": "0", "ranks": list(range(len(work)))}],
        }  # fmt: skip
        pair.op(f"work of {rank}", 0, own)
        launch(pair, 1, own, 1)
        kernel(pair, 1, ALL_REDUCE, own + 2, end,
               **{"Process Group Name": "0", "In msg nelems": 1_000, "dtype": "Float",
                  "Collective name": "allreduce"})  # fmt: skip
        pair.event("cudaDeviceSynchronize", own + 2, end + 1 - own - 2, "cuda_runtime",
                   correlation=2)  # fmt: skip
        pair.nodes[0]["pid"] = rank
        for node in pair.nodes:
            node["pid"] = rank
        pair.write(f"_{rank}")
    return nadi.build_graph(nadi.load_job(folder))


def spans(graph: EventGraph, *changes: str) -> dict[str, tuple[float, float]]:
    """Give when each operation starts and ends after changes, in us; names that stand once."""
    time = nadi.what_if(graph, *changes).replay.time / 1000
    names = graph.op_names.to_list()
    return {
        name: (float(time[2 * op]), float(time[2 * op + 1]))
        for op, name in enumerate(names)
        if names.count(name) == 1
    }


def ends(graph: EventGraph, name: str, *changes: str) -> list[float]:
    """Give when the operations of a name end after changes, in us, in the graph's order."""
    time = nadi.what_if(graph, *changes).replay.time / 1000
    return [float(time[2 * op + 1]) for op, n in enumerate(graph.op_names) if n == name]
