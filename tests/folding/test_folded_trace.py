"""A trace that is folded and unfolded is the same, and folding it again gives the same."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.recordings import FoldedTrace, fold_trace, unfold_trace
from nadi.recordings.folded.folded_trace import NodeTimes
from nadi.recordings.folded.row_values import names_of, numbered_names
from nadi.trace.attributes import AttributeBuilder, LazyAttributes
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Provenance, Trace

NAMES = ("gemm", "layers.0.up", "layers.7.up", "x128_064", "a 12 b 3")


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Draw a trace with repeated rows, dependencies on rows before, attributes and times."""
    body = draw(st.integers(1, 6))
    turns, rest = draw(st.integers(1, 6)), draw(st.integers(0, 3))
    size = body * turns + rest
    kinds = draw(st.lists(st.integers(0, 2), min_size=body, max_size=body))
    row = np.arange(size)
    turn, at = row // body, row % body
    varies = draw(st.booleans())
    duration = (at + 1) * 10 + (turn * turn if varies else 0)
    grows = draw(st.booleans())
    names = [f"layers.{t if grows else 0}.{NAMES[kinds[k]]}"
             for t, k in zip(turn.tolist(), at.tolist(), strict=True)]  # fmt: skip
    distance = draw(st.lists(st.integers(1, 2 * body), min_size=body, max_size=body))
    src = row - np.array(distance)[at]
    dst = row[src >= 0]
    builder = AttributeBuilder()
    builder.add(-1, "version", "string", "7")
    for k in range(size):
        if kinds[k % body]:
            builder.add(k, "op_class", "string", ("gemm", "norm")[kinds[k % body] - 1])
    attributes = builder.build()
    return Trace(
        nodes=NODES.build(size, {
            "id": row * 3, "name": names, "kind": "COMP", "category": "kernel", "is_cpu": False,
            "duration": duration, "stream": np.array(kinds)[at], "layer": turn,
            "flops": np.array(kinds)[at] * 100,
        }),
        deps=DEPS.build(dst.size, {"src": src[dst], "dst": dst, "kind": "data"}),
        groups=GROUPS.empty(), issues=ISSUES.empty(), provenance=Provenance("", ()), rank=0,
        world_size=1, given_attributes=LazyAttributes(lambda: attributes),
    )  # fmt: skip


def assert_same(a: FoldedTrace, b: FoldedTrace) -> None:
    for field in fields(FoldedTrace):
        mine, theirs = getattr(a, field.name), getattr(b, field.name)
        if isinstance(mine, pl.DataFrame):
            assert mine.equals(theirs), field.name
    assert a.attributes.table().equals(b.attributes.table())


@given(traces())
def test_unfolded_is_what_was_folded(trace: Trace) -> None:
    folded = fold_trace(trace)
    unfold_trace(folded).assert_equals(trace)
    assert folded.num_nodes == trace.nodes.height


@given(traces())
def test_folding_again_gives_the_same(trace: Trace) -> None:
    folded = fold_trace(trace)
    assert_same(fold_trace(unfold_trace(folded)), folded)


PLANS: dict[str, dict[str, Any]] = {
    "dense": {"tp": 2, "pp": 4, "dp": 2, "global_batch": 32},
    "experts": {"tp": 2, "pp": 2, "dp": 4, "ep": 4, "global_batch": 32},
    "zero": {"dp": 8, "zero": 3, "global_batch": 32, "recompute": "full"},
    "dualpipe": {"pp": 4, "global_batch": 16, "schedule": "dualpipe"},
}


@pytest.mark.parametrize("name", PLANS)
def test_stages_of_models_are_the_same_with_their_tensors(name: str) -> None:
    model = "mixtral-8x7b" if name == "experts" else "gpt3-125m"
    job = nadi.llm_job(model, **PLANS[name])
    for trace in dict.fromkeys(job.traces):
        folded = fold_trace(trace)
        again = unfold_trace(folded)
        again.assert_equals(trace)
        assert again.operands.equals(trace.operands)
        assert again.tensors.equals(trace.tensors)
        assert folded.nodes.height < trace.nodes.height / 2


def test_times_of_ranks_stay_apart() -> None:
    trace = next(iter(nadi.llm_job("gpt3-125m", global_batch=8).traces))
    size = trace.nodes.height
    time = np.full(size, 100)
    folded = fold_trace(trace, NodeTimes(time, time - 10, time + 20))
    assert folded.ranks_vary
    assert not folded.turns_vary
    assert unfold_trace(folded).column("duration").tolist() == [100] * size
    assert set(folded.times["high"]) == {120}


@given(st.lists(st.text("ab019.", max_size=8), min_size=1, max_size=20))
def test_names_are_put_together_as_they_were(names: list[str]) -> None:
    series = pl.Series(names, dtype=pl.String).cast(pl.Categorical())
    assert names_of(numbered_names(series)).cast(pl.String).to_list() == names
