"""Laws of parts, on small jobs made at random, written as PyTorch would and read back.

Everything is a part that equals the whole, the part of a part is the part, and a time range in a
time range is that range. What a random job holds is described in ``tests/graph/test_graph_laws``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, assume, example, given, settings, strategies as st

import nadi
from nadi.graph import EventGraph
from nadi.trace import validate_job, validate_trace
from nadi.whatif import PartOf, part_operations
from tests.amounts import examples
from tests.graph.test_graph_laws import EVERY_KIND, QUEUED, Description, RankWriter, jobs

SETTINGS = settings(
    max_examples=examples(64), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
NAMES = st.sampled_from(["aten::mm", "aten::", "ProfilerStep", "cuda", "gemm", "gloo", "AllReduce"])


@contextmanager
def written(description: Description) -> Iterator[Path]:
    unit, ranks = description
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        whole.mkdir()
        for rank, todo in enumerate(ranks):
            writer = RankWriter(rank, len(ranks), unit)
            for action in todo:
                writer.act(action)
            writer.write(whole)
        yield Path(folder)


def graph_of(folder: Path) -> EventGraph:
    return nadi.build_graph(nadi.load_job(folder))


def rows(graph: EventGraph) -> list[tuple[object, ...]]:
    """Give each operation: rank, name, thread, stream, start and end since the epoch."""
    ranks = np.array(graph.job.ranks)[graph.op_trace].tolist()
    time = (graph.time[: 2 * graph.num_ops] + graph.job.origin).reshape(-1, 2).tolist()
    thread, stream = graph.numbers("thread").tolist(), graph.op_stream.tolist()
    return list(zip(ranks, graph.op_names.to_list(), thread, stream, time, strict=True))


def chosen_rows(graph: EventGraph, chosen: np.ndarray) -> list[tuple[object, ...]]:
    return [row for row, taken in zip(rows(graph), chosen.tolist(), strict=True) if taken]


@SETTINGS
@given(jobs)
@example(EVERY_KIND)
@example(QUEUED)
def test_a_part_of_everything_is_the_whole(description: Description) -> None:
    with written(description) as folder:
        whole = nadi.load_job(folder / "whole")
        assume(nadi.build_graph(whole).num_ops)
        part = nadi.extract(folder / "whole", output=folder / "part")
        assert part.waits.height == part.num_cut_collectives == 0
        read = nadi.load_job(folder / "part")
        assert read.matches.equals(whole.matches)
        for mine, theirs in zip(read.traces, whole.traces, strict=True):
            assert mine.nodes.equals(theirs.nodes)
            assert mine.deps.equals(theirs.deps)
            assert mine.groups.equals(theirs.groups)


@SETTINGS
@given(jobs, NAMES)
@example(EVERY_KIND, "cuda")
@example(EVERY_KIND, "gemm")
def test_the_part_of_a_part_is_the_part(description: Description, name: str) -> None:
    with written(description) as folder:
        whole = graph_of(folder / "whole")
        try:
            chosen = part_operations(whole, PartOf(under=name))
        except nadi.errors.UsageError:
            assume(False)
        part = nadi.extract(folder / "whole", output=folder / "part", under=name)
        assert part.num_operations == chosen.sum()
        once = graph_of(folder / "part")
        assert rows(once) == chosen_rows(whole, chosen)
        for trace in once.job.traces:
            assert validate_trace(trace).height == 0
        assert validate_job(once.job).height == 0
        again = nadi.extract(folder / "part", output=folder / "again", under=name)
        assert again.num_operations == again.num_all == part.num_operations
        twice = graph_of(folder / "again")
        for mine, theirs in zip(twice.job.traces, once.job.traces, strict=True):
            assert mine.nodes.equals(theirs.nodes)
            assert mine.deps.equals(theirs.deps)


@SETTINGS
@given(jobs, st.lists(st.integers(0, 40), min_size=4, max_size=4))
@example(EVERY_KIND, [0, 2, 12, 30])
def test_a_window_in_a_window_is_that_window(description: Description, times: list[int]) -> None:
    unit = description[0]
    begin, first, last, end = (unit * time for time in sorted(times))
    with written(description) as folder:
        whole = graph_of(folder / "whole")
        try:
            inner = part_operations(whole, PartOf(window=f"{first}ns:{last}ns"))
            part_operations(whole, PartOf(window=f"{begin}ns:{end}ns"))
        except nadi.errors.UsageError:
            assume(False)
        nadi.extract(folder / "whole", output=folder / "outer", window=f"{begin}ns:{end}ns")
        outer = graph_of(folder / "outer")
        # a collective may be cut for one range and not for the other if ranks differ
        ranks = {whole.job.ranks[number] for number in whole.op_trace[inner].tolist()}
        assume(ranks == set(outer.job.ranks))
        shift = outer.job.origin - whole.job.origin
        window = f"{max(first - shift, 0)}ns:{last - shift}ns"
        nadi.extract(folder / "outer", output=folder / "inner", window=window)
        assert rows(graph_of(folder / "inner")) == chosen_rows(whole, inner)
