from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from nadi.recordings.dependencies.operator_nesting import Nesting, nest
from nadi.recordings.dependencies.operator_nesting_kernels import (
    Nested,
    ThreadOrders,
    walk_threads,
)
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Provenance, Trace
from tests.amounts import examples
from tests.reference import nesting as oracle

SETTINGS = settings(max_examples=examples(200))

Operations = list[tuple[int, int]]


def in_order(operations: Operations) -> Operations:
    return sorted(operations, key=lambda operation: (operation[0], -operation[1]))


operations = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 5)).map(lambda op: (op[0], op[0] + op[1])),
    max_size=9,
).map(in_order)
threads = st.lists(operations, max_size=3)


def walk(threads: list[Operations]) -> tuple[Nesting, list[int]]:
    """Run the kernel on threads one after the other, with the ends ordered by the oracle."""
    flat = [operation for thread in threads for operation in thread]
    first = np.concatenate([[0], np.cumsum([len(thread) for thread in threads], dtype=np.int64)])
    by_end = [
        int(first[t]) + boundary // 2
        for t, thread in enumerate(threads)
        for boundary in oracle.boundaries(thread)
        if boundary % 2 == 1
    ]
    start, end = np.array(flat, dtype=np.int64).reshape(-1, 2).T.copy()
    boundary, owner = np.full((2, 2 * len(flat)), -9, dtype=np.int64)
    parent = np.full(len(flat), -9, dtype=np.int64)
    nested = Nested(boundary, owner, parent, exclusive=np.zeros(len(flat), dtype=np.int64))
    rows = np.arange(len(flat))
    orders = ThreadOrders(first, rows, np.array(by_end, dtype=np.int64), start, end)
    return Nesting(rows, first, *nested, walk_threads(orders, nested))


def trace_of(threads: list[Operations]) -> Trace:
    """Put the threads into one trace, their operations mingled in order of time."""
    rows = sorted(
        ((start, -end, t) for t, thread in enumerate(threads) for start, end in thread),
        key=lambda row: row[:2],
    )
    columns = {
        "id": list(range(len(rows))),
        "name": [f"op{i}" for i in range(len(rows))],
        "kind": "COMP",
        "category": "operator",
        "start": [start for start, _, _ in rows],
        "duration": [-negative_end - start for start, negative_end, _ in rows],
        "thread": [thread for _, _, thread in rows],
    }
    nodes = NODES.build(len(rows), columns)
    return Trace(nodes, DEPS.empty(), GROUPS.empty(), ISSUES.empty(), Provenance("test", ()))


def assert_equals_oracle(found: Nesting, threads: list[Operations]) -> None:
    """Compare thread by thread; threads without operations have no place in a trace."""
    for t, thread in enumerate(threads):
        low, high = found.thread_ptr[t : t + 2].tolist()
        # the numbers of this thread's operations, which need not lie side by side
        number = sorted({int(b) // 2 for b in found.boundary[2 * low : 2 * high]})
        assert len(number) == len(thread)
        place = {-1: -1, **{op: i for i, op in enumerate(number)}}
        boundary = [2 * place[b // 2] + b % 2 for b in found.boundary[2 * low : 2 * high].tolist()]
        assert boundary == oracle.boundaries(thread)
        assert [place[op] for op in found.owner[2 * low : 2 * high].tolist()] == oracle.owners(
            thread
        )
        assert [place[op] for op in found.parent[number].tolist()] == oracle.parents(thread)
        assert found.exclusive[number].tolist() == oracle.exclusive_times(thread)
    outliving = [
        end > thread[parent][1]
        for thread in threads
        for (_, end), parent in zip(thread, oracle.parents(thread), strict=True)
        if parent >= 0
    ]
    assert found.num_overlaps == sum(outliving)


@SETTINGS
@given(threads)
@example([[(0, 5), (3, 8), (4, 6)]])
@example([[(2, 2), (2, 2), (2, 2)]])
def test_kernel_equals_the_oracle(threads):
    assert_equals_oracle(walk(threads), threads)


@SETTINGS
@given(threads)
@example([[(0, 4), (4, 8), (4, 4)]])
@example([[(1, 1), (1, 1)], [(1, 1), (1, 1)]])
def test_nesting_of_a_trace_equals_the_oracle(threads):
    threads = [thread for thread in threads if thread]
    assert_equals_oracle(nest(trace_of(threads)), threads)


@SETTINGS
@given(operations)
def test_no_overlap_is_counted_where_none_is_partial(thread):
    assert (walk([thread]).num_overlaps > 0) == oracle.has_partial_overlap(thread)


@pytest.mark.parametrize(
    ("thread", "boundary", "owner", "parent", "exclusive", "num_overlaps"),
    [
        pytest.param([], [], [], [], [], 0, id="nothing"),
        pytest.param([(3, 7)], [0, 1], [-1, 0], [-1], [4], 0, id="one"),
        pytest.param(
            [(0, 10), (2, 5), (3, 4), (6, 9)],
            [0, 2, 4, 5, 3, 6, 7, 1], [-1, 0, 1, 2, 1, 0, 3, 0], [-1, 0, 1, 0], [4, 2, 1, 3], 0,
            id="nested",
        ),
        pytest.param([(0, 5), (5, 9)], [0, 1, 2, 3], [-1, 0, -1, 1], [-1, -1], [5, 4], 0,
                     id="one after the other"),
        pytest.param([(1, 6), (1, 6)], [0, 2, 3, 1], [-1, 0, 1, 0], [-1, 0], [0, 5], 0,
                     id="the same interval"),
        pytest.param([(2, 2), (2, 2)], [0, 2, 3, 1], [-1, 0, 1, 0], [-1, 0], [0, 0], 0,
                     id="the same moment"),
        pytest.param([(0, 2), (2, 5), (2, 2)], [0, 1, 2, 4, 5, 3], [-1, 0, -1, 1, 2, 1],
                     [-1, -1, 1], [2, 3, 0], 0, id="a moment where two operations meet"),
        # the second stays open after the first, in which it began, has ended
        pytest.param([(0, 5), (3, 8)], [0, 2, 1, 3], [-1, 0, 1, 1], [-1, 0], [3, 5], 1,
                     id="partial overlap"),
        pytest.param([(0, 9), (1, 4), (2, 6)], [0, 2, 4, 3, 5, 1], [-1, 0, 1, 2, 2, 0],
                     [-1, 0, 1], [4, 1, 4], 1, id="overlap within another"),
    ],
)  # fmt: skip
def test_known_threads(thread, boundary, owner, parent, exclusive, num_overlaps):
    for found in (walk([thread]), nest(trace_of([thread]))):
        assert found.boundary.tolist() == boundary
        assert found.owner.tolist() == owner
        assert found.parent.tolist() == parent
        assert found.exclusive.tolist() == exclusive
        assert found.num_overlaps == num_overlaps


def test_of_equal_intervals_the_annotation_is_outside_and_the_runtime_call_inside():
    trace = trace_of([[(0, 4), (0, 4), (0, 4)]])
    nodes = trace.nodes.with_columns(
        category=NODES.build(
            3, {"id": 0, "name": "", "kind": "COMP",
                "category": ["annotation", "operator", "runtime"], "start": 0}
        )["category"]
    )  # fmt: skip
    found = nest(Trace(nodes, trace.deps, trace.groups, trace.issues, trace.provenance))
    assert found.parent_row.tolist() == [-1, 0, 1]
    assert found.exclusive.tolist() == [0, 0, 4]


def test_threads_that_only_poll_and_device_work_are_left_out():
    columns = {
        "id": list(range(5)),
        "name": ["cudaEventQuery", "aten::mm", "cudaEventQuery", "gemm", "untimed"],
        "kind": "COMP",
        "category": ["runtime", "operator", "runtime", "kernel", "metadata"],
        "start": [0, 1, 2, 3, -1],
        "duration": [9, 5, 1, 2, -1],
        "thread": [7, 1, 1, -1, -1],
    }
    nodes = NODES.build(5, columns)
    trace = Trace(nodes, DEPS.empty(), GROUPS.empty(), ISSUES.empty(), Provenance("test", ()))
    found = nest(trace)
    assert found.rows.tolist() == [1, 2]  # thread 1 asks for an event too, but works besides
    assert found.parent_row.tolist() == [-1, 1]
    assert found.exclusive.tolist() == [4, 1]
