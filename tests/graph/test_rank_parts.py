"""Parts of a graph that workers make of ranks are joined to the graph of the job."""

from __future__ import annotations

import pickle
from dataclasses import fields

import numpy as np
import pytest

import nadi
from nadi.graph.edges.job_graph import graph_of_parts, rank_part
from nadi.graph.edges.rank_vertices import RankPart
from nadi.trace.trace import Trace
from tests.conftest import NOT_HERE, SHARED

TRACES = SHARED / "traces"
pytestmark = pytest.mark.skipif(not TRACES.exists(), reason=NOT_HERE)


def received(trace: Trace) -> RankPart:
    """Return the part of a rank as some executors give it back: its arrays cannot be written."""
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(rank_part(trace), protocol=5, buffer_callback=buffers.append)
    part = pickle.loads(content, buffers=[bytes(buffer) for buffer in buffers])
    assert isinstance(part, RankPart)
    assert not part.chain.gap.flags.writeable
    return part


@pytest.mark.parametrize("name", ["cpu_ddp4", "gpu_dlrm8"])
def test_parts_that_cannot_be_written_are_the_graph_of_the_job(name: str) -> None:
    job = nadi.load_job(TRACES / name)
    parts = [received(trace) for trace in job.traces]
    gaps = [part.chain.gap.copy() for part in parts]
    graph, joined = nadi.build_graph(job), graph_of_parts(job, parts)
    assert all(map(np.array_equal, gaps, (part.chain.gap for part in parts)))
    for column in fields(graph)[1:]:
        assert np.array_equal(getattr(graph, column.name), getattr(joined, column.name))
