"""Typical overheads, estimated from a recording."""

from __future__ import annotations

import numpy as np
import polars as pl

import nadi
from nadi.overheads import launch_latency, stream_turnaround
from tests.conftest import PairWriter


def pairs(trace: nadi.Trace, kind: str) -> tuple[np.ndarray, np.ndarray]:
    chosen = trace.deps.filter(pl.col("kind") == kind)
    return chosen["src"].to_numpy(), chosen["dst"].to_numpy()


def launched(pair: PairWriter, number: int, call: float, start: float, end: float) -> None:
    pair.event("cudaLaunchKernel", call, 5, "cuda_runtime", correlation=number)
    pair.event(f"k{number}", start, end - start, "kernel", pid=0, tid=7, stream=7, device=0,
               correlation=number)  # fmt: skip


def test_latency_is_the_median_over_launches_onto_an_idle_stream(pair: PairWriter) -> None:
    pair.op("op", 0, 10_000)
    for number in range(1, 26):
        begin = 200 * number
        late = 50 if number <= 5 else 2  # five stragglers do not move the median
        launched(pair, number, begin, begin + 5 + late, begin + 100)
    trace = nadi.link_pair(*map(nadi.read, pair.write()))
    after_end, after_start = launch_latency(trace, *pairs(trace, "launch"))
    assert set(after_end.tolist()) == {2_000}
    assert set(after_start.tolist()) == {7_000}


def test_with_few_launches_it_is_the_lower_quartile_but_no_more_than_3_us(
    pair: PairWriter,
) -> None:
    pair.op("op", 0, 1_000)
    launched(pair, 1, 10, 30, 40)
    trace = nadi.link_pair(*map(nadi.read, pair.write()))
    after_end, after_start = launch_latency(trace, *pairs(trace, "launch"))
    assert (after_end.tolist(), after_start.tolist()) == ([3_000], [20_000])
    graph = nadi.build_graph(nadi.link_job([trace]))
    # 15 us after the call: 3 us are typical, 12 us are not explained
    assert graph.delay[graph.in_ptr[:-1] < graph.in_ptr[1:]].sum() == 12_000


def test_turnaround_is_the_mean_over_queued_pairs_of_the_same_kind(pair: PairWriter) -> None:
    pair.op("op", 0, 1_000)
    launched(pair, 1, 10, 20, 100)
    launched(pair, 2, 30, 101, 200)  # 1 us after k1, launched long before
    launched(pair, 3, 50, 203, 300)  # 3 us after k2
    launched(pair, 4, 310, 320, 330)  # launched after k3 had ended: says nothing
    trace = nadi.link_pair(*map(nadi.read, pair.write()))
    assert stream_turnaround(trace, *pairs(trace, "stream")).tolist() == [2_000] * 3
