"""Ranks that share traces: as ranks with equal traces of their own."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.errors import InputError, PairError, UsageError
from nadi.simulation.work.ordered_lanes import in_lanes
from nadi.simulation.work.program import SharedColumn, program_of
from tests.amounts import examples
from tests.simulator.cases import compute, devices_of, jobs, num_ranks_of, systems, trace_of

SETTINGS = settings(
    max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck)
)


@SETTINGS
@given(st.data())
def test_a_shared_trace_is_as_one_of_its_own(data: st.DataObject) -> None:
    case = data.draw(systems(contended=False), label="case")
    nodes = data.draw(jobs(case), label="nodes")
    kinds = [trace_of(of_rank) for of_rank in nodes.values()]
    which = data.draw(
        st.lists(st.integers(0, min(len(kinds), 3) - 1), min_size=num_ranks_of(case),
                 max_size=num_ranks_of(case))
    )  # fmt: skip
    shared = [kinds[k] for k in which]
    own = [replace(trace) for trace in shared]
    one, other = program_of(shared), program_of(own)
    for program in ((one, other), *(_with_lanes(one, other) or ())):
        _assert_equal(*program)
    try:
        expected = nadi.simulate(own, devices_of(case))
    except (PairError, UsageError, InputError) as error:
        told = str(error)
        with pytest.raises(type(error), match=re.escape(told)):
            nadi.simulate(shared, devices_of(case))
        return
    found = nadi.simulate(shared, devices_of(case))
    assert found.cycles.tolist() == expected.cycles.tolist()
    assert found.schedule.table.equals(expected.schedule.table)
    results = [nadi.simulation.results_of(done) for done in (found, expected)]
    assert results[0].rank_times.equals(results[1].rank_times)
    assert results[0].collectives.equals(results[1].collectives)


def _with_lanes(one: Any, other: Any) -> list[tuple[Any, Any]] | None:
    try:
        return [(in_lanes(one), in_lanes(other))]
    except InputError:
        return None


def _assert_equal(one: Any, other: Any) -> None:
    for field in fields(one):
        if field.name in ("traces", "shared", "lane", "lane_names"):
            continue
        here, there = (np.asarray(getattr(program, field.name)) for program in (one, other))
        assert here.tolist() == there.tolist(), field.name
    if other.lane is None:
        assert one.lane is None
        return
    # lanes may have other numbers, but the same nodes and names
    pairs = set(zip(one.lane.tolist(), other.lane.tolist(), strict=True))
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    assert all((a < 0) == (b < 0) for a, b in pairs)
    assert all(one.lane_names[a] == other.lane_names[b] for a, b in pairs if a >= 0)


@SETTINGS
@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=6),
    st.lists(st.integers(0, 5), min_size=1, max_size=20),
    st.integers(-5, 5),
)
def test_a_shared_column_is_as_an_array(own: list[int], place: list[int], by: int) -> None:
    assume(max(place) < len(own))
    column = SharedColumn(np.array(own), np.array(place, dtype=np.int32))
    array = np.array(own)[place]
    assert np.asarray(column).tolist() == array.tolist()
    assert (len(column), column.size, column.shape) == (array.size, array.size, array.shape)
    for found, expected in (
        (column == by, array == by), (column + by, array + by), (by - column, by - array),
        (-column, -array), (column * column, array * array), (column + array, array + array),
        (np.maximum(column, by), np.maximum(array, by)), (column[array > by], array[array > by]),
        (np.isin(column, [by]), np.isin(array, [by])), (column.cumsum(), array.cumsum()),
    ):  # fmt: skip
        assert isinstance(found, np.ndarray)
        assert found.tolist() == expected.tolist()
    assert (column.max(), np.add.reduce(column)) == (array.max(), array.sum())
    assert np.asarray(column, dtype=np.float64).dtype == np.float64
    assert not hasattr(column, "_anything")


def test_a_lane_that_contradicts_its_dependencies_is_told_of_its_own_rank() -> None:
    good = trace_of([compute(0, 1, stream=7), compute(1, 1, stream=7)])
    starts = {"start": pl.Series([10, 5])}
    nodes = trace_of([compute(0, 1, stream=7), compute(1, 1, stream=7, data_deps=[0])])
    bad = replace(nodes, nodes=nodes.nodes.with_columns(**starts))
    with pytest.raises(InputError, match="rank 3 node"):
        nadi.simulate([good, good, good, bad, bad], nadi.load_system("dgx-h100", 5))
