"""The checks of dependencies hold for a small job, and fail where something is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dependency_order
import polars as pl
import pytest
from _linked import Linked
from _reach import topological_order
from _report import Checks

import nadi
from nadi.trace.schema import DEPS
from tests.conftest import PairWriter

STREAM = {"pid": 0, "tid": 7, "stream": 7, "device": 0}
OTHER_STREAM = {"pid": 0, "tid": 8, "stream": 8, "device": 0}


@pytest.fixture
def files(pair: PairWriter) -> tuple[Path, Path]:
    """Write four kernels and two collectives, each kind on a stream of its own."""
    for number in range(6):
        pair.op("aten::mm", 100 * number, 50)
        pair.event("cudaLaunchKernel", 100 * number + 10, 5, "cuda_runtime", correlation=number + 1)
        name = "gemm" if number < 4 else "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
        place = STREAM if number < 4 else OTHER_STREAM
        pair.event(name, 100 * number + 20, 30, "kernel", correlation=number + 1, **place)
    return pair.write()


@pytest.fixture
def trace(files: tuple[Path, Path]) -> nadi.Trace:
    host, device = files
    return nadi.link_pair(nadi.read(host), nadi.read(device))


def found(check: str, trace: nadi.Trace) -> tuple[int, int]:
    checks = Checks()
    getattr(dependency_order, check)("small", Linked(trace), checks)
    return checks.num_exact, checks.num_checks


def without(trace: nadi.Trace, *kinds: str) -> nadi.Trace:
    return replace(trace, deps=trace.deps.filter(~pl.col("kind").is_in(kinds)))


def test_a_job_holds(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    checks = Checks()
    dependency_order.check(",".join(map(str, files)), checks)
    assert checks.all_hold
    printed = capsys.readouterr().out
    for what in ("no cycle", "follows on its stream", "collectives follow"):
        assert what in printed


def test_missing_stream_order_is_noticed(trace: nadi.Trace) -> None:
    assert found("check_streams", trace) == (4, 4)
    assert found("check_streams", without(trace, "stream")) == (0, 4)


def test_collectives_without_order_are_noticed(trace: nadi.Trace) -> None:
    assert found("check_collectives", trace) == (1, 1)
    assert found("check_collectives", without(trace, "stream", "order", "comm")) == (0, 1)


def test_a_cycle_is_noticed(trace: nadi.Trace) -> None:
    ours = Linked(trace)
    vertices = 2 * len(ours.start)
    assert len(topological_order(vertices, ours.edges())) == vertices
    src, dst = trace.deps.filter(pl.col("kind") == "stream").row(0)[:2]
    backwards = DEPS.build(1, {"src": [dst], "dst": [src], "kind": "stream"})
    cyclic = replace(trace, deps=pl.concat([trace.deps, backwards]))
    assert len(topological_order(vertices, Linked(cyclic).edges())) < vertices
