"""From when on changes are made: at a moment itself, and for all between two events alike."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.graph.event_graph import EventGraph
from tests.conftest import PairWriter
from tests.whatif.programs import ALL_REDUCE, kernel, launch, ranks_that_meet, three_kernels

OF_KERNELS = (
    "scale k. 0.5", "scale step 0.5", "set k. 7us", "remove k.", "remove k2", "fuse k.",
    "cuda-graph step", "move k2 to 9", "move k. to 9", "cut stream k.", "cut launch k.",
    "add k1 -> k3", "no-overhead",
)  # fmt: skip
OF_RANKS = (
    "scale nccl 0.5", "set nccl 7us", "remove nccl", "remove nccl rank=1", "remove cudaDevice",
    "network 1GB/s 1us", "cut arrival nccl", "cut sync cudaDevice", "no-overhead", "no-gaps",
    f"add 'work of 0' -> {ALL_REDUCE}", "move nccl to 9", "scale work 0.5",
)  # fmt: skip


def after(graph: EventGraph, change: str, since: int) -> EventGraph | None:
    """Make a change, or give None if it says that there is nothing to do."""
    try:
        return nadi.whatif.apply_change(graph, nadi.whatif.parse_change(change), since)
    except nadi.errors.UsageError:
        return None


def edges_of(graph: EventGraph | None) -> list[list[int]]:
    """Give what a change can change; what nothing leads to any more begins at that moment."""
    if graph is None:
        return []
    delay = np.where(np.diff(graph.in_ptr) > 0, graph.delay, -1)
    return [np.asarray(column).tolist() for column in (*graph.edges, delay, graph.op_stream)]


def check(graph: EventGraph, change: str) -> None:
    moments = np.unique(graph.time).tolist()
    assert edges_of(after(graph, change, 0)) != edges_of(graph)
    for before, moment in pairwise(moments):
        # no event lies between: the moment itself is the first at which anything changes
        earlier, at = (after(graph, change, since) for since in (before + 1, moment))
        assert edges_of(earlier) == edges_of(at)
    none = after(graph, change, moments[-1] + 1)
    assert none is None or nadi.graph.replay_graph(none).time.tolist() == graph.time.tolist()
    starts = graph.time[: 2 * graph.num_ops : 2]
    for since in moments:
        changed = after(graph, change, since)
        if changed is not None:
            early = np.flatnonzero(starts < since)
            assert (nadi.graph.replay_graph(changed).time[2 * early] == graph.time[2 * early]).all()


@pytest.mark.parametrize("change", OF_KERNELS)
def test_of_one_rank(pair: PairWriter, change: str) -> None:
    check(three_kernels(pair), change)


@pytest.mark.parametrize("change", OF_RANKS)
def test_of_ranks_that_meet(tmp_path: Path, change: str) -> None:
    check(ranks_that_meet(tmp_path, [10, 50, 20]), change)


def test_a_range_is_captured_from_its_begin_on(pair: PairWriter) -> None:
    for part in range(3):
        pair.op(f"part {part}", 100 * part, 60)
        for k in range(2):
            start = 100 * part + 20 + 20 * k
            launch(pair, 2 * part + k + 1, start - 10, 5)
            kernel(pair, 2 * part + k + 1, f"k{part}{k}", start, start + 10)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    check(graph, "cuda-graph part")
    for since, same in ((100_000, "part [12]"), (100_001, "part 2")):
        one, other = after(graph, "cuda-graph part", since), after(graph, f"cuda-graph '{same}'", 0)
        assert edges_of(one) == edges_of(other)
