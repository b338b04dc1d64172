"""Dependencies by tensors: against a byte-wise oracle, by laws, by hand, and on recordings."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.kernels.tensor_accesses import ALIAS, FRESH, READ, SCALAR, WRITE, Uses, find_own_accesses
from nadi.recordings.dependencies.tensor_dependencies import (
    Effects,
    effects_by_name,
    effects_of_schema,
    run_edges,
)
from nadi.trace.schema import TENSOR_DEPS
from tests.reference import tensors as oracle
from tests.reference.tensors import Access, Edge, Operation

SIZE = 12  # bytes of a storage in random programs


def uses_of(operations: Sequence[Operation]) -> Uses:
    rows = [
        (op, flags, access.storage, access.begin, access.end)
        for op, operation in enumerate(operations)
        for flags, accesses in (
            (FRESH, [Access(storage, 0, 1) for storage in operation.fresh]),
            (READ, operation.reads),
            (WRITE, operation.writes),
        )
        for access in accesses
    ]
    op, flags, storage, begin, end = np.array(rows, dtype=np.int64).reshape(-1, 5).T.copy()
    return Uses(
        np.searchsorted(op, np.arange(len(operations) + 1)), flags, np.zeros_like(flags),
        storage, begin, end,
    )  # fmt: skip


def parents_of(operations: Sequence[Operation]) -> Any:
    return np.array([operation.parent for operation in operations], dtype=np.int64)


def settled(operations: Sequence[Operation]) -> tuple[Uses, Any, list[Operation]]:
    """Run the kernel that leaves operations their own accesses; also gives these."""
    uses, last_inside = uses_of(operations), np.empty(len(operations), dtype=np.int64)
    find_own_accesses(uses, parents_of(operations), 3, last_inside)
    own = []
    for op, operation in enumerate(operations):
        rows = range(uses.first[op], uses.first[op + 1])
        accesses = {
            bit: tuple(
                Access(*map(int, (uses.storage[row], uses.begin[row], uses.end[row])))
                for row in rows
                if uses.flags[row] & bit
            )
            for bit in (READ, WRITE)
        }
        own.append(Operation(operation.parent, accesses[READ], accesses[WRITE], operation.fresh))
    return uses, last_inside, own


def edges_of(operations: Sequence[Operation]) -> set[Edge]:
    uses, last_inside, _ = settled(operations)
    found = run_edges(uses, parents_of(operations), last_inside, 3)
    count = int(found.sizes[0])
    listed = [
        (src, dst, TENSOR_DEPS[kind])
        for src, dst, kind in zip(
            *(column[:count].tolist() for column in (found.src, found.dst, found.kind)), strict=True
        )
    ]
    assert len(set(listed)) == len(listed), "an edge stands twice"
    return set(listed)


@st.composite
def accesses(draw: st.DrawFn) -> tuple[Access, ...]:
    found = []
    for _ in range(draw(st.integers(0, 2))):
        begin = draw(st.integers(0, SIZE - 1))
        found.append(Access(draw(st.integers(0, 2)), begin, draw(st.integers(begin + 1, SIZE))))
    return tuple(found)


@st.composite
def programs(draw: st.DrawFn, *, nested: bool = True, threads: int = 1) -> list[Operation]:
    """Operations in order of their beginnings; those of a thread lie in each other."""
    operations: list[Operation] = []
    open_on: list[list[int]] = [[] for _ in range(threads)]
    for op in range(draw(st.integers(1, 14))):
        stack = open_on[draw(st.integers(0, threads - 1))]
        del stack[draw(st.integers(0, len(stack))) if nested else 0 :]
        fresh = tuple(draw(st.sets(st.integers(0, 2), max_size=1)))
        operations.append(
            Operation(stack[-1] if stack else -1, draw(accesses()), draw(accesses()), fresh)
        )
        stack.append(op)
    return operations


@given(programs())
def test_own_accesses_are_those_of_the_oracle(operations: list[Operation]) -> None:
    assert settled(operations)[2] == oracle.own_accesses(operations)


@given(programs())
def test_edges_are_those_of_the_oracle(operations: list[Operation]) -> None:
    assert edges_of(operations) == oracle.edges(oracle.own_accesses(operations))


@given(programs(threads=3))
def test_edges_of_several_threads_are_those_of_the_oracle(operations: list[Operation]) -> None:
    found = edges_of(operations)
    assert found == oracle.edges(settled(operations)[2])
    assert all(src < dst for src, dst, _ in found)


@dataclass
class Memory:
    """Runs operations: what one writes is told by its number and by all that it reads."""

    content: dict[tuple[int, int, int], int] = field(default_factory=dict)
    results: dict[int, int] = field(default_factory=dict)

    def run(self, op: int, operation: Operation, generation: dict[int, int]) -> None:
        def key(place: tuple[int, int]) -> tuple[int, int, int]:
            return place[0], generation.get(place[0], 0), place[1]

        read = [self.content.get(key(p), 0) for a in operation.reads for p in a.bytes()]
        self.results[op] = hash((op, *read))
        for access in operation.writes:
            for place in access.bytes():
                self.content[key(place)] = self.results[op]


@given(programs(nested=False), st.randoms(use_true_random=False))
def test_any_order_that_keeps_the_edges_computes_the_same(
    operations: list[Operation], chance: random.Random
) -> None:
    """And without one of them another result is possible: the next test."""
    generations = generations_of(operations)
    assert run_in(range(len(operations)), operations, generations) == run_in(
        some_order(operations, edges_of(operations), chance), operations, generations
    )


@given(programs(nested=False))
def test_no_edge_is_there_without_need(operations: list[Operation]) -> None:
    """Every edge is of two operations that touch a byte, with no write to it in between."""
    for src, dst, kind in edges_of(operations):
        first = places(operations[src].reads if kind == "war" else operations[src].writes)
        second = places(operations[dst].reads if kind == "raw" else operations[dst].writes)
        for op in range(src + 1, dst):
            first -= places(operations[op].writes)
        for op in range(src + 1, dst + 1):
            first = {place for place in first if place[0] not in operations[op].fresh}
        assert first & second


def places(accesses: Sequence[Access]) -> set[tuple[int, int]]:
    return {place for access in accesses for place in access.bytes()}


def generations_of(operations: Sequence[Operation]) -> list[dict[int, int]]:
    """Tell of each operation which memory each storage's name stands for then."""
    now: dict[int, int] = {}
    found = []
    for operation in operations:
        for storage in operation.fresh:
            now[storage] = now.get(storage, 0) + 1
        found.append(dict(now))
    return found


def some_order(operations: Sequence[Operation], edges: set[Edge], chance: random.Random) -> Any:
    waits = {op: {src for src, dst, _ in edges if dst == op} for op in range(len(operations))}
    while waits:
        op = chance.choice([op for op, before in waits.items() if not before & waits.keys()])
        del waits[op]
        yield op


def run_in(
    order: Any, operations: Sequence[Operation], generations: list[dict[int, int]]
) -> tuple[Any, Any]:
    memory = Memory()
    for op in order:
        memory.run(op, operations[op], generations[op])
    return memory.content, memory.results


def test_a_parameter_that_many_read_costs_no_more_than_its_reads() -> None:
    readers = [Operation(reads=(Access(0, 0, 8),)) for _ in range(3000)]
    write = Operation(writes=(Access(0, 0, 8),))
    slices = [Operation(reads=(Access(0, at, at + 1),)) for at in range(8)]
    operations = [write, *readers, *slices, write, write]
    found = edges_of(operations)
    assert len(found) == 2 * (3000 + 8) + 1
    assert (3009, 3010, "waw") in found


def test_all_writers_of_parts_are_waited_for() -> None:
    """As with a cache that grows by an entry a step, and is read whole."""
    parts = [Operation(writes=(Access(0, at, at + 1),)) for at in range(100)]
    readers = [Operation(reads=(Access(0, 0, 100),)) for _ in range(100)]
    found = edges_of([*parts, *readers])
    assert found == {(src, dst, "raw") for src in range(100) for dst in range(100, 200)}


# what schemas say


@pytest.mark.parametrize(
    ("schema", "inputs", "outputs"),
    [
        ("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
         (READ | WRITE, READ | SCALAR, 0, 0), (FRESH | WRITE | ALIAS, 0)),
        ("aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
         (WRITE, READ, 0, 0), (FRESH | WRITE | ALIAS, 0)),
        ("aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)",
         (READ, READ, WRITE, 0), (FRESH | WRITE | ALIAS, 0)),
        ("aten::mm(Tensor self, Tensor mat2) -> Tensor", (READ, READ, 0), (FRESH | WRITE, 0)),
        ("aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]",
         (0, 0, 0, 0), (FRESH | WRITE | ALIAS, 0)),
        (("aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, "
         "SymInt ignore_index) -> (Tensor output, Tensor total_weight)"),
         (READ, READ, READ, 0, 0, 0), (FRESH | WRITE, FRESH | WRITE, 0)),
        ("aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()",
         (READ | WRITE, READ | SCALAR, 0, 0), (0, 0)),
        ("aten::ones_like(Tensor self, *, ScalarType? dtype=None) -> Tensor",
         (0, 0, 0), (FRESH | WRITE, 0)),
        ("aten::empty.memory_format(SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
         (0, 0, 0), (FRESH, 0)),
        ("aten::new_empty(Tensor self, SymInt[] size) -> Tensor", (0, 0, 0), (FRESH, 0)),
        ("aten::expand_as(Tensor self, Tensor other) -> Tensor", (READ, 0, 0), (FRESH | WRITE, 0)),
        ("aten::item(Tensor self) -> Scalar", (READ, 0), (0, 0)),
        ("aten::resize_(Tensor(a!) self, SymInt[] size) -> Tensor(a!)", (0,), (0,)),
        ("aten::record_stream(Tensor(a!) self, Stream s) -> ()", (0,), (0,)),
        ("aten::is_same_size(Tensor self, Tensor other) -> bool", (0,), (0,)),
        (("fbgemm::bounds_check_indices(Tensor rows, Tensor(a!) indices, int mode, "
         "Tensor(d!)? weights=None) -> ()"), (READ, READ | WRITE, 0, READ | WRITE, 0), (0, 0)),
        (("c10d::allreduce_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup "
         "process_group, Tensor? sparse_indices, int timeout=-1) -> (Tensor[], Work)"),
         (READ | WRITE, 0, READ, 0), (0,)),
        (("c10d::allgather_(Tensor[][] output_tensors, Tensor[] input_tensors, int timeout) -> "
         "(Tensor[][], Work)"), (WRITE, READ, 0), (0,)),
        ("c10d::recv_(Tensor[] tensors, int src) -> Work", (WRITE, 0), (0,)),
        ("c10d::send(Tensor[] tensors, int dst) -> Work", (READ, 0), (0,)),
    ],
    ids=lambda value: value.split("(")[0] if isinstance(value, str) else "",
)  # fmt: skip
def test_a_schema_tells_what_is_read_and_written(
    schema: str, inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> None:
    assert effects_of_schema(schema) == Effects(inputs, outputs)


def test_views_touch_no_data() -> None:
    for schema, touches in (
        ("aten::t(Tensor(a) self) -> Tensor(a)", False),
        ("aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]", False),
        ("aten::detach_(Tensor(a!) self) -> Tensor(a!)", False),
        ("aten::zero_(Tensor(a!) self) -> Tensor(a!)", True),
        ("aten::empty(SymInt[] size) -> Tensor", True),
    ):
        effects = effects_of_schema(schema)
        assert effects is not None
        assert effects.touch_data == touches, schema


@pytest.mark.parametrize("text", ["", "nothing", "aten::mm", "aten::mm(Tensor self", "a(b) -> c"])
def test_what_is_no_schema_is_none(text: str) -> None:
    assert effects_of_schema(text) is None


def test_without_a_schema_the_name_tells() -> None:
    assert effects_by_name("aten::add_") == Effects((READ | WRITE, READ), (FRESH | WRITE,), True)
    assert effects_by_name("aten::zero_") == Effects((WRITE, READ), (FRESH | WRITE,), True)
    assert effects_by_name("aten::mm") == Effects((READ, READ), (FRESH | WRITE,), True)
    assert effects_by_name("aten::empty_like") == Effects((0, READ), (FRESH,), True)
    for name in ("detach", "autograd::engine::x", "torch::autograd::AccumulateGrad",
                 "ReluBackward0", "gloo:all_reduce", "aten::detach_"):  # fmt: skip
        assert effects_by_name(name) is None


# whole traces, written by hand

ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
ADD_ = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
FILL_ = "aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)"
SLICE = "aten::slice.Tensor(Tensor(a) self, int dim=0) -> Tensor(a)"
COPY_ = "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"
EMPTY = "aten::empty.memory_format(SymInt[] size) -> Tensor"
LIKE = "aten::ones_like(Tensor self) -> Tensor"


@dataclass(frozen=True)
class Tensor:
    """A tensor of floats, or of 8-byte integers if it is a number."""

    id: int
    storage: int
    offset: int = 0
    shape: tuple[int, ...] = (4,)
    strides: tuple[int, ...] = (1,)
    device: str = "cpu"
    itemsize: int = 4

    @property
    def recorded(self) -> list[Any]:
        elements = int(np.prod(self.shape, dtype=np.int64))
        return [self.id, self.storage, self.offset, elements, self.itemsize, self.device]


class Host:
    """Writes a host trace whose operations have tensors."""

    def __init__(self, *, strides: bool = True) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.strides = strides
        self.op("[pytorch|profiler|execution_trace|process]", "", parent=0)

    def op(
        self, name: str, schema: str, inputs: Sequence[Any] = (), outputs: Sequence[Any] = (),
        parent: int = 1, **attrs: str,
    ) -> int:  # fmt: skip
        attrs = {"op_schema": schema, **attrs}
        self.nodes.append({
            "id": len(self.nodes) + 1, "name": name, "ctrl_deps": parent,
            "inputs": self._lists(inputs), "outputs": self._lists(outputs),
            "attrs": [{"name": n, "type": "string", "value": v} for n, v in attrs.items()],
        })  # fmt: skip
        return len(self.nodes)

    def _lists(self, operands: Sequence[Any]) -> dict[str, Any]:
        def each(value: Any, take: Any, otherwise: Any) -> Any:
            if isinstance(value, list):
                return [each(item, take, otherwise) for item in value]
            return take(value) if isinstance(value, Tensor) else otherwise(value)

        def types(value: Any) -> str:
            if isinstance(value, list):
                return f"GenericList[{','.join(map(types, value))}]"
            return "Tensor(float)" if isinstance(value, Tensor) else "Int"

        lists = {
            "values": [each(value, lambda t: t.recorded, lambda v: v) for value in operands],
            "shapes": [each(value, lambda t: t.shape, lambda _: []) for value in operands],
            "types": [types(value) for value in operands],
        }
        if self.strides:
            lists["strides"] = [each(v, lambda t: t.strides, lambda _: []) for v in operands]
        return lists

    def read(self, folder: Path) -> nadi.Trace:
        file = folder / "host.json"
        schema = "1.1.1-chakra.0.0.4" if self.strides else "1.0.2-chakra.0.0.4"
        file.write_text(json.dumps({"schema": schema, "pid": 7, "nodes": self.nodes}))
        return nadi.read(file)


def deps_by_id(trace: nadi.Trace) -> set[Edge]:
    ids = trace.column("id")
    deps = nadi.recordings.tensor_deps(trace)
    return {(int(ids[s]), int(ids[d]), kind) for s, d, kind, _ in deps.iter_rows()}


def test_the_schema_of_the_first_operation_counts_too(tmp_path: Path) -> None:
    host, x = Host(), Tensor(10, 1)
    host.nodes.clear()
    first = host.op("mine", FILL_, [x, 1], [x], parent=0)
    last = host.op("aten::add", ADD, [x, x, 1], [Tensor(11, 2)], parent=0)
    assert deps_by_id(host.read(tmp_path)) == {(first, last, "raw")}


def test_in_place_views_and_slices(tmp_path: Path) -> None:
    host = Host()
    whole, copy = Tensor(10, 1, shape=(8,)), Tensor(20, 2, shape=(8,))
    left, right = Tensor(11, 1), Tensor(12, 1, offset=4)
    fill = host.op("aten::fill_", FILL_, [whole, 1], [whole])
    host.op("aten::slice", SLICE, [whole, 0], [left])
    host.op("aten::slice", SLICE, [whole, 0], [right])
    add = host.op("aten::add_", ADD_, [left, right, 1], [left])
    clone = host.op("aten::add", ADD, [whole, whole, 1], [copy])
    again = host.op("aten::fill_", FILL_, [right, 2], [right])
    last = host.op("aten::fill_", FILL_, [right, 3], [right])
    assert deps_by_id(host.read(tmp_path)) == {
        (fill, add, "raw"), (fill, clone, "raw"), (add, clone, "raw"),
        (clone, again, "war"), (add, again, "war"), (again, last, "waw"),
    }  # fmt: skip


def test_the_range_of_a_tensor_follows_its_strides(tmp_path: Path) -> None:
    host = Host()
    column = Tensor(11, 1, shape=(3,), strides=(4,))  # of a matrix of 3 by 4: bytes 0 to 36
    host.op("aten::fill_", FILL_, [column, 1], [column])
    inside = host.op("aten::fill_", FILL_, [Tensor(12, 1, offset=8, shape=(1,)), 1], [])
    host.op("aten::fill_", FILL_, [Tensor(13, 1, offset=9, shape=(1,)), 1], [])
    assert deps_by_id(host.read(tmp_path)) == {(2, inside, "waw")}


def test_without_strides_a_tensor_is_contiguous_and_that_is_said(pair: Any) -> None:
    host = Host(strides=False)
    column = Tensor(11, 1, shape=(3,), strides=(4,))
    host.op("aten::fill_", FILL_, [column, 1], [column])
    host.op("aten::fill_", FILL_, [Tensor(12, 1, offset=2, shape=(1,)), 1], [])
    host.op("aten::fill_", FILL_, [Tensor(13, 1, offset=8, shape=(1,)), 1], [])
    trace = linked(host, pair)
    assert names_of(trace) == {("aten::fill_#2", "aten::fill_#3", "waw")}
    assert issues(trace)["link.tensor-strides"] == 4


def test_an_operator_that_calls_others_does_what_they_do_not(tmp_path: Path) -> None:
    """As addmm does on a CPU: it copies the bias with an operator, and multiplies itself."""
    host = Host()
    bias, x, w, out, sum_ = (Tensor(10 + i, 1 + i) for i in range(5))
    for tensor in (bias, x, w):
        host.op("aten::fill_", FILL_, [tensor, 1], [tensor])
    linear = host.op("aten::linear", "aten::linear(Tensor x, Tensor w, Tensor? b=None) -> Tensor",
                     [x, w, bias], [out])  # fmt: skip
    addmm = host.op("aten::addmm", "aten::addmm(Tensor self, Tensor a, Tensor b) -> Tensor",
                    [bias, x, w], [out], parent=linear)  # fmt: skip
    copy = host.op("aten::copy_", COPY_, [out, bias, False], [out], parent=addmm)
    last = host.op("aten::add", ADD, [out, out, 1], [sum_])
    assert deps_by_id(host.read(tmp_path)) == {
        (2, copy, "raw"), (3, addmm, "raw"), (4, addmm, "raw"), (addmm, last, "raw"),
    }  # fmt: skip


def test_a_result_that_an_operator_inside_allocates_is_written_after_that(tmp_path: Path) -> None:
    """As native_layer_norm does with its mean."""
    host = Host()
    x, mean = Tensor(10, 1), Tensor(11, 2)
    norm = host.op("aten::norm", "aten::norm(Tensor self) -> Tensor", [x], [mean])
    host.op("aten::empty", EMPTY, [4], [mean], parent=norm)
    used = host.op("aten::add", ADD, [mean, mean, 1], [Tensor(12, 3)])
    assert deps_by_id(host.read(tmp_path)) == {(norm, used, "raw")}


def test_a_result_in_the_memory_of_an_argument_is_a_view(tmp_path: Path) -> None:
    """Whatever the schema says; unless another result is made of the same data."""
    host = Host()
    x = Tensor(10, 1)
    host.op("aten::fill_", FILL_, [x, 1], [x])
    host.op("aten::_unsafe_view", "aten::_unsafe_view(Tensor self) -> Tensor", [x], [x])
    both = "aten::both(Tensor self) -> (Tensor, Tensor)"
    reader = host.op("aten::both", both, [x], [x, Tensor(11, 2)])
    last = host.op("aten::fill_", FILL_, [x, 2], [x])
    assert deps_by_id(host.read(tmp_path)) == {(2, reader, "raw"), (reader, last, "war")}


def test_the_shape_of_a_tensor_is_not_its_data(tmp_path: Path) -> None:
    host = Host()
    x, ones = Tensor(10, 1), Tensor(11, 2)
    host.op("aten::fill_", FILL_, [x, 1], [x])
    like = host.op("aten::ones_like", LIKE, [x], [ones])
    fill = host.op("aten::fill_", FILL_, [ones, 1], [ones], parent=like)
    add_ = host.op("aten::add_", ADD_, [x, ones, 1], [x])
    assert deps_by_id(host.read(tmp_path)) == {(2, add_, "raw"), (fill, add_, "raw")}


def test_a_storage_id_given_anew_has_no_history(tmp_path: Path) -> None:
    host = Host()
    x = Tensor(10, 1)
    host.op("aten::fill_", FILL_, [x, 1], [x])
    host.op("aten::add", ADD, [x, x, 1], [Tensor(11, 2)])
    host.op("aten::empty", EMPTY, [4], [Tensor(12, 1)])
    fill = host.op("aten::fill_", FILL_, [Tensor(12, 1), 1], [Tensor(12, 1)])
    other = host.op("aten::fill_", FILL_, [Tensor(13, 1, device="cuda:0"), 1], [])
    found = deps_by_id(host.read(tmp_path))
    assert found == {(2, 3, "raw")}
    assert not any({fill, other} & {src, dst} for src, dst, _ in found)


def test_a_number_of_the_program_is_no_ones_data(tmp_path: Path) -> None:
    """It lies in storage 2, whose name a tensor had before that nobody uses any more."""
    host = Host()
    x, old = Tensor(10, 1), Tensor(11, 2, shape=(16,))
    host.op("aten::fill_", FILL_, [x, 1], [x])
    made = host.op("aten::add", ADD, [x, x, 1], [old])
    number = Tensor(12, 2, shape=(), strides=(), itemsize=8)
    add_ = host.op("aten::add_", ADD_, [x, number, 1], [x])
    inner = host.op("aten::copy_", COPY_, [Tensor(13, 3), number, False], [], parent=add_)
    used = host.op("aten::add_", ADD_, [x, old, 1], [x])
    found = deps_by_id(host.read(tmp_path))
    assert (made, add_, "raw") not in found
    assert (made, inner, "raw") not in found
    assert (made, used, "raw") in found


def test_meta_and_empty_tensors_are_nowhere(tmp_path: Path) -> None:
    host = Host()
    for tensor in (Tensor(10, 1, device="meta"), Tensor(11, 2, shape=(0,)), Tensor(12, 0)):
        host.op("aten::fill_", FILL_, [tensor, 1], [tensor])
        host.op("aten::fill_", FILL_, [tensor, 1], [tensor])
    assert deps_by_id(host.read(tmp_path)) == set()


def test_lists_of_tensors_and_collectives(tmp_path: Path) -> None:
    host = Host()
    a, b, c, d = (Tensor(10 + i, 1 + i) for i in range(4))
    for tensor in (a, b, c):
        host.op("aten::fill_", FILL_, [tensor, 1], [tensor])
    each = "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()"
    foreach = host.op("aten::_foreach_add_", each, [[a, b], [c, c], 1])
    reduce = host.op("c10d::allreduce_", "c10d::allreduce_(Tensor[] tensors, int timeout) -> "
                     "(Tensor[], Work)", [[a, b], -1], [[a, b], 0])  # fmt: skip
    host.op("record_param_comms", "", [[a, b], 1], [[a, b]], parent=reduce)
    gather = host.op("c10d::allgather_", "c10d::allgather_(Tensor[][] output_tensors, Tensor[] "
                     "input_tensors) -> (Tensor[][], Work)", [[[c, d]], [a]], [])  # fmt: skip
    assert deps_by_id(host.read(tmp_path)) == {
        (2, foreach, "raw"), (3, foreach, "raw"), (4, foreach, "raw"),
        (foreach, reduce, "raw"), (reduce, gather, "raw"), (foreach, gather, "war"),
    }  # fmt: skip


def test_a_compiled_kernel_may_write_all_that_it_is_given(pair: Any) -> None:
    host = Host()
    x, y = Tensor(10, 1), Tensor(11, 2)
    host.op("aten::fill_", FILL_, [x, 1], [x])
    host.op("triton_poi_fused_0", "", [x, y, 4], kernel_backend="triton")
    host.op("aten::add_", "", [x, y, 4], [x])
    trace = linked(host, pair)
    assert names_of(trace) == {
        ("aten::fill_#2", "triton_poi_fused_0#3", "raw"),
        ("triton_poi_fused_0#3", "aten::add_#4", "raw"),
    }
    assert trace.deps.filter(pl.col("kind") == "raw")["inferred"].to_list() == [True, True]
    assert issues(trace)["link.tensor-guessed"] == 2


def test_the_schema_of_a_compiled_kernel_says_more_than_its_backend(pair: Any) -> None:
    host = Host()
    x, y = Tensor(10, 1), Tensor(11, 2)
    host.op("triton_first", ADD, [x, x, 1], [y], kernel_backend="triton")
    host.op("triton_last", ADD, [x, x, 1], [Tensor(12, 3)], kernel_backend="triton")
    assert names_of(linked(host, pair)) == set()  # both only read x


def test_times_decide_where_ids_say_otherwise(pair: Any) -> None:
    host = Host()
    x = Tensor(10, 1)
    for _ in range(3):
        host.op("aten::fill_", FILL_, [x, 1], [x])
    trace = linked(host, pair, starts={2: 10.0, 3: 30.0, 4: 20.0})
    assert names_of(trace) == {("aten::fill_#2", "aten::fill_#3", "waw")}
    assert issues(trace)["link.tensor-order"] == 1
    assert not nadi.trace.validate_trace(trace).height


def test_operations_of_the_first_nanosecond_have_dependencies_too(pair: Any) -> None:
    host = Host()
    x = Tensor(10, 1)
    for _ in range(3):
        host.op("aten::fill_", FILL_, [x, 1], [x])
    trace = linked(host, pair, starts={2: 0.0, 3: 0.0, 4: 10.0})
    assert trace.column("start").tolist() == [-1, 0, 0, 10_000]
    assert names_of(trace) == {
        ("aten::fill_#2", "aten::fill_#3", "waw"), ("aten::fill_#3", "aten::fill_#4", "waw")
    }  # fmt: skip


def test_without_operands_there_are_no_such_dependencies(demo_folder: Path, pair: Any) -> None:
    pair.op("aten::mm", 0, 100)
    _, device = pair.write()
    trace = nadi.read(device)
    assert nadi.recordings.tensor_deps(trace).height == 0
    assert (
        nadi.recordings.link_device(trace).deps.filter(pl.col("kind").is_in(TENSOR_DEPS)).height
        == 0
    )


def linked(host: Host, pair: Any, starts: dict[int, float] | None = None) -> nadi.Trace:
    """Link a host trace to a device trace in which its operations follow each other."""
    for node in host.nodes[1:]:
        number = node["id"]
        node["attrs"].append({"name": "rf_id", "type": "uint64", "value": number})
        start = (starts or {}).get(number, 10.0 * number)
        pair.event(node["name"], start, 5, "cpu_op", **{"Record function id": number})
    _, device = pair.write()
    return nadi.link_pair(host.read(pair.folder), nadi.read(device))


def names_of(trace: nadi.Trace) -> set[tuple[str, str, str]]:
    names, ids = trace.nodes["name"].cast(str), trace.column("id")
    deps = trace.deps.filter(pl.col("kind").is_in(TENSOR_DEPS))
    return {
        (f"{names[s]}#{ids[s]}", f"{names[d]}#{ids[d]}", kind) for s, d, kind, _ in deps.iter_rows()
    }


def issues(trace: nadi.Trace) -> dict[str, int]:
    return dict(trace.issues.select("code", "count").iter_rows())


@st.composite
def recorded_programs(draw: st.DrawFn) -> tuple[Host, list[Operation]]:
    """Operators on slices of few storages, as a host trace and as the oracle takes them.

    Row 0 is the process; every operator is a row, and its tensors have ids of their own.
    """
    host = Host()
    operations = [Operation()]
    ids = iter(range(100, 10_000))
    inside = []

    def tensor(storage: int) -> tuple[Tensor, tuple[Access, ...]]:
        offset = draw(st.integers(0, 5))
        size = draw(st.integers(1, 6 - offset))
        step = draw(st.integers(1, 2))
        length = (size + step - 1) // step
        span = (length - 1) * step + 1
        found = Tensor(next(ids), storage, offset, (length,), (step,))
        return found, (Access(storage, 4 * offset, 4 * (offset + span)),)

    for _ in range(draw(st.integers(1, 10))):
        kind = draw(st.sampled_from(["fill", "add_", "add", "slice", "copy", "both"]))
        (a, at_a), (b, at_b) = (tensor(draw(st.integers(1, 2))) for _ in range(2))
        # a result in storage 3 is new memory
        new = Tensor(next(ids), 3, 0, (6,), (1,))
        made = (Access(3, 0, 24),)
        if kind == "fill":
            host.op("aten::fill_", FILL_, [a, 1], [a])
            operations.append(Operation(0, writes=at_a))
        elif kind == "add_":
            host.op("aten::add_", ADD_, [a, b, 1], [a])
            operations.append(Operation(0, at_a + at_b, at_a))
        elif kind == "add":
            host.op("aten::add", ADD, [a, b, 1], [new])
            operations.append(Operation(0, at_a + at_b, made, (3,)))
        elif kind == "slice":
            host.op("aten::slice", SLICE, [a, 0], [a])
            operations.append(Operation(0))
        elif kind == "copy":
            host.op("aten::copy_", COPY_, [a, Tensor(next(ids), 3, 1, (2,), (1,)), False], [a])
            operations.append(Operation(0, (Access(3, 4, 12),), at_a))
        else:  # an operator that lets another do a part of its work
            outer = host.op("aten::add", ADD, [a, b, 1], [new])
            operations.append(Operation(0, at_a + at_b, made, (3,)))
            host.op("aten::copy_", COPY_, [new, b, False], [new], parent=outer)
            operations.append(Operation(outer - 1, at_b, made))
            inside.append(outer)
    return host, operations


@given(recorded_programs())
def test_recorded_programs_have_the_edges_of_the_oracle(
    tmp_path_factory: pytest.TempPathFactory, program: tuple[Host, list[Operation]]
) -> None:
    host, operations = program
    trace = host.read(tmp_path_factory.mktemp("host"))
    found = {(src - 1, dst - 1, kind) for src, dst, kind in deps_by_id(trace)}
    assert found == oracle.edges(oracle.own_accesses(operations))


# recordings

PAIRS = ["cpu_mlp", "cpu_transformer4", "gpu_resnet_pair", "gpu_simple_add_pair"]


@pytest.mark.parametrize("folder", PAIRS)
def test_recordings_keep_the_rules(shared_traces: Path, folder: str) -> None:
    host, device = (nadi.read(shared_traces / folder / f"{f}.json.gz") for f in ("host", "device"))
    trace = nadi.link_pair(host, device)
    assert not nadi.trace.validate_trace(trace).height
    found = trace.deps.filter(pl.col("kind").is_in(TENSOR_DEPS))
    assert found.height
    assert (found["src"] < found["dst"]).all()
    # nothing was told of times: that no operation begins before one that it needs has ended
    # says that no dependency is false by more than what the program kept anyway
    src, dst = found["src"].to_numpy(), found["dst"].to_numpy()
    start, duration = trace.column("start"), trace.column("duration")
    assert (start[src] + duration[src] <= start[dst]).all()
    assert not trace.issues.filter(pl.col("code") == "link.tensor-order").height
    on_demand = nadi.recordings.tensor_deps(trace)
    assert set(found.iter_rows()) == set(on_demand.iter_rows())
    without = nadi.link_pair(host, device, tensors=False)
    assert without.deps.equals(trace.deps.filter(~pl.col("kind").is_in(TENSOR_DEPS)))


def inner_of(trace: nadi.Trace, row: int) -> set[int]:
    rows = {row}
    for child, parent in enumerate(trace.column("parent").tolist()):
        if parent in rows:
            rows.add(child)
    return rows


def test_a_training_step_flows_through_its_tensors(shared_traces: Path) -> None:
    """Forward, loss, backward, optimizer, and the forward of the next step."""
    trace = nadi.read(shared_traces / "cpu_mlp" / "host.json.gz")
    names = trace.nodes["name"].cast(str).to_list()
    deps = nadi.recordings.tensor_deps(trace)
    steps = [inner_of(trace, row) for row, name in enumerate(names) if "ProfilerStep" in name]
    assert len(steps) == 3
    crossing = [
        (names[s], names[d], kind) for s, d, kind, _ in deps.iter_rows()
        if not any(s in step and d in step for step in steps)
    ]  # fmt: skip
    # only the optimizer's writes to the parameters go from step to step
    assert {(s, kind) for s, _, kind in crossing} == {("aten::add_", "raw")}
    assert {d for _, d, _ in crossing} == {"aten::addmm", "aten::copy_", "aten::mm", "aten::add_"}
    step = sorted(steps[1])
    linear = [row for row in step if names[row] == "aten::addmm"]
    path = reachable(deps, linear[0])
    assert {names[row] for row in path if row in steps[1]} >= {
        "aten::clamp_min", "aten::addmm", "aten::_log_softmax", "aten::nll_loss_forward",
        "aten::nll_loss_backward", "aten::mm", "aten::threshold_backward", "aten::add_",
    }  # fmt: skip
    assert steps[2] & path


def reachable(deps: pl.DataFrame, first: int) -> set[int]:
    found = {first}
    for src, dst in deps.select("src", "dst").sort("dst").iter_rows():
        if src in found:
            found.add(dst)
    return found


@pytest.mark.parametrize("file", ["cpu_mlp/host", "cpu_transformer4/host", "et_only/gpt2_1.1.0"])
def test_backward_reads_what_its_forward_wrote(shared_traces: Path, file: str) -> None:
    """By autograd's sequence numbers; of operations whose backward needs their own result."""
    trace = nadi.read(shared_traces / f"{file}.json.gz")
    names = trace.nodes["name"].cast(str).to_list()
    sequence = trace.column("sequence").tolist()
    pairs = {
        (s, d) for s, d, kind, _ in nadi.recordings.tensor_deps(trace).iter_rows() if kind == "raw"
    }
    saving = ("ReluBackward0", "LogSoftmaxBackward0", "NativeLayerNormBackward0", "TanhBackward0",
              "SoftmaxBackward0")  # fmt: skip
    forward = {
        seq: row for row, seq in enumerate(sequence) if seq >= 0 and names[row].startswith("aten::")
        and "Backward" not in names[trace.column("parent")[row]]
    }  # fmt: skip
    backward = [row for row, name in enumerate(names) if name in saving]
    assert backward
    for row in backward:
        ends = inner_of(trace, row)
        begins = inner_of(trace, forward[sequence[row]])
        assert any(src in begins and dst in ends for src, dst in pairs), names[row]
