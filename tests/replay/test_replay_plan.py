"""Which tensors of a replay are new, views of others, or there before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.pytorch import RecordedCall, RecordedCalls, plan_replay, replay_source
from nadi.pytorch.rerunning.operator_trials import _Search
from nadi.pytorch.rerunning.recorded_calls import ReplayPlace, TensorArgument, Unrecorded
from nadi.pytorch.rerunning.replay_plan import ReplayPlan

_MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
_T = "aten::t(Tensor(a) self) -> Tensor(a)"


def tensor(number: int, storage: int, *shape: int, offset: int = 0) -> TensorArgument:
    strides = tuple(int(np.prod(shape[k + 1 :])) for k in range(len(shape)))
    return TensorArgument(number, storage, offset, "float", shape, strides, "cpu", 4)


def call(row: int, name: str, inputs: list[Any], outputs: list[Any], schema: str = _MM) -> Any:
    return RecordedCall(row, name, schema, tuple(inputs), tuple(outputs), 1)


def numbers(places: Any) -> list[int]:
    return [one.number for one in places]


def test_outputs_are_used_by_later_calls() -> None:
    a, b, c, d = (tensor(k, 10 + k, 4, 4) for k in range(4))
    plan = plan_replay([
        call(0, "aten::mm", [a, b], [c]),
        call(1, "aten::mm", [c, a], [d]),
    ])  # fmt: skip
    first, second = plan.calls
    assert numbers(second.inputs) == [first.outputs[0].number, first.inputs[0].number]
    assert [one.place.recorded for one in plan.externals] == [a, b]
    assert plan.external_bytes == 2 * 64
    assert second.ended == (first.outputs[0].number, second.outputs[0].number)


def test_a_tensor_that_no_call_gave_is_a_view_of_its_storage() -> None:
    whole, part, out = tensor(0, 9, 8, 4), tensor(1, 9, 2, 4, offset=8), tensor(2, 3, 2, 2)
    plan = plan_replay([
        call(0, "aten::mm", [whole, whole], [out]),
        call(1, "aten::mm", [part, part], [out]),
    ])  # fmt: skip
    ((place, base),) = plan.calls[1].views
    assert (place.recorded, base) == (part, plan.calls[0].inputs[0])
    assert len(plan.externals) == 1


def test_external_memory_is_as_large_as_the_largest_use() -> None:
    part, whole = tensor(0, 9, 2, 4), tensor(1, 9, 8, 4)
    plan = plan_replay([call(0, "aten::mm", [part, part], []), call(1, "aten::mm", [whole], [])])
    assert [one.num_bytes for one in plan.externals] == [128]


def test_a_storage_whose_id_comes_again_is_other_memory() -> None:
    small, out, large = tensor(0, 9, 2, 2), tensor(1, 7, 2, 2), tensor(2, 7, 64, 64)
    plan = plan_replay([
        call(0, "aten::mm", [small, small], [out]),
        call(1, "aten::mm", [large, large], []),  # does not fit into what the first one made
    ])  # fmt: skip
    assert [one.place.recorded for one in plan.externals] == [small, large]
    assert plan.calls[1].views == ()


def test_indices_stay_below_the_rows_of_a_table() -> None:
    table, ids = tensor(0, 1, 50, 8), tensor(1, 2, 3)._replace(dtype="long int", itemsize=8)
    schema = "aten::embedding(Tensor weight, Tensor indices) -> Tensor"
    plan = plan_replay([call(0, "aten::embedding", [table, ids], [tensor(2, 3, 3, 8)], schema)])
    assert {one.place.recorded: one.bound for one in plan.externals} == {table: 0.6124, ids: 50}


def test_communication_is_awaited_before_its_memory_is_used() -> None:
    a, out = tensor(0, 1, 4, 4), tensor(2, 3, 4, 4)
    plan = plan_replay([
        call(0, "c10d::allreduce_", [[a], Unrecorded("Object")], [[a]], ""),
        call(1, "aten::mm", [out, out], []),
        call(2, "aten::mm", [a, out], []),
    ])  # fmt: skip
    assert [one.awaited for one in plan.calls] == [(), (), (0,)]


def test_source_shows_nothing_but_operators_and_shapes() -> None:
    a, out = tensor(0, 1, 4, 4), tensor(1, 2, 4, 4)
    view = a._replace(tensor=5, strides=(1, 4))
    plan = plan_replay([
        call(0, "aten::t", [a], [view], _T),
        call(1, "aten::mm", [a, view], [out]),
        call(2, "aten::mm", [out, out], [tensor(7, 8, 4, 4)]),
    ])  # fmt: skip
    text = replay_source(plan).text
    assert "op_0 = torch.ops.aten.t.default" in text
    assert "t[2] = op_1(t[0], t[1])" in text
    assert "    op_1(t[2], t[2])\n" in text  # nobody uses what it gives
    compile(text, "replay", "exec")


@pytest.mark.parametrize(
    ("schema", "parameters", "by_position"),
    [
        (_MM, ("self", "mat2"), 2),
        ("aten::sum.x(Tensor self, int[1]? dim, *, int dtype=6) -> Tensor",
         ("self", "dim", "dtype"), 2),
        ('aten::gelu(Tensor self, *, str approximate="no, ne") -> Tensor',
         ("self", "approximate"), 1),
    ],
)  # fmt: skip
def test_schemas(schema: str, parameters: tuple[str, ...], by_position: int) -> None:
    signature = call(0, "", [], [], schema).signature
    assert (signature.parameters, signature.by_position) == (parameters, by_position)


@pytest.mark.parametrize("schema", ["", "aten::mm", "os::system(int __import__('os')) -> int"])
def test_schemas_that_cannot_be_read_are_no_source(schema: str) -> None:
    assert call(0, "", [], [], schema).signature is None


def test_numbers_that_are_none_are_no_tensor(tmp_path: Path, demo_folder: Path) -> None:
    recorded = RecordedCalls(nadi.read(demo_folder / "host_0.json.gz"))
    row = recorded.outermost()[0]
    assert recorded.call(row).signature is not None
    text = json.dumps([["__import__('os')", 1, 0, 4, 4, "cpu"]])
    recorded._texts[0][row], recorded._texts[1][row] = text, "[[2]]"
    recorded._texts[2][row], recorded._texts[3][row] = '["Tensor(float)"]', "[[1]]"
    assert recorded.call(row).inputs == (Unrecorded("Tensor(float)"),)


def test_all_calls_of_a_recording_have_a_place(demo_folder: Path) -> None:
    recorded = RecordedCalls(nadi.read(demo_folder / "host_0.json.gz"))
    plan = plan_replay(recorded.call(row) for row in recorded.outermost())
    assert_written_once(plan)


class NestedCalls:
    """Calls by row, the rows below each, and spans; all that a search for replayable calls asks."""

    def __init__(
        self, calls: list[RecordedCall], below: dict[int, list[int]],
        spans: dict[int, tuple[int, int]] | None = None,
    ) -> None:  # fmt: skip
        self.call, self._below, self._spans = calls.__getitem__, below, spans or {}
        self.names = [one.name for one in calls]

    def span(self, row: int) -> tuple[int, int]:
        return self._spans.get(row, (-1, -1))

    def outermost(self, row: int) -> list[int]:
        return self._below.get(row, [])


@pytest.mark.parametrize(
    ("dtype", "reused", "is_replaced"),
    [("long int", False, True), ("long int", True, False), ("float", False, False)],
)
def test_a_call_gives_way_to_those_inside_if_a_later_one_takes_indices_of_them(
    dtype: str, reused: bool, is_replaced: bool
) -> None:
    """Of a pooling, unless another call made something in the same memory since."""
    indices = tensor(3, 30, 2, 2)._replace(dtype=dtype)
    calls = [
        call(0, "aten::max_pool2d", [tensor(1, 10, 4, 4)], [tensor(2, 20, 2, 2)]),
        call(1, "aten::max_pool2d_with_indices", [tensor(1, 10, 4, 4)],
             [tensor(2, 20, 2, 2), indices]),
        call(2, "aten::max", [tensor(1, 10, 4, 4)], [indices if reused else tensor(4, 40, 2)]),
        call(3, "aten::max_pool2d_with_indices_backward", [tensor(2, 20, 2, 2), indices], []),
    ]  # fmt: skip
    search = _Search(NestedCalls(calls, {0: [1]}), [0, 2, 3])
    found = search.with_hidden_indices()
    assert list(found) == [0] * is_replaced
    search.replace(found)
    assert search.rows == [is_replaced, 2, 3]
    assert not search.with_hidden_indices()


def test_memory_of_hidden_indices_that_comes_again_is_another_tensor() -> None:
    indices = tensor(3, 30, 2, 2)._replace(dtype="long int")
    calls = [
        call(0, "aten::sort", [tensor(1, 10, 4, 4)], [tensor(2, 20, 2, 2)]),
        call(1, "aten::arange", [], [indices]),
        call(2, "aten::mm", [tensor(3, 30, 4, 4), tensor(5, 30, 2, 2)], []),
    ]
    assert not _Search(NestedCalls(calls, {0: [1]}), [0, 2]).with_hidden_indices()


@pytest.mark.parametrize(("inner_ns", "is_skipped"), [(10, True), (60, False)])
def test_what_works_longer_than_the_operators_in_it_is_skipped(
    inner_ns: int, is_skipped: bool
) -> None:
    a = tensor(1, 10, 4, 4)
    calls = [call(0, "aten::mm", [a, a], [a]), call(1, "aten::resolve_conj", [a], [a])]
    search = _Search(NestedCalls(calls, {0: [1]}, {0: (0, 100), 1: (5, 5 + inner_ns)}), [0])
    assert search.replace({0: "it fails"})
    assert search.rows == [1]
    assert [one.name for one in search.skipped] == ["aten::mm"] * is_skipped
    assert [one.name for one in search.replaced] == ["aten::mm"] * (not is_skipped)


def test_a_number_is_no_view_of_the_memory_that_it_got() -> None:
    """PyTorch makes a tensor of a Python number, often where another one has just ended."""
    a, number = tensor(0, 9, 4, 4), tensor(1, 9)._replace(dtype="double", itemsize=8)
    part = tensor(2, 9, 2, 4)
    plan = plan_replay([
        call(0, "aten::mm", [a, a], []),
        call(1, "aten::div", [a, number], []),
        call(2, "aten::mm", [part, part], []),
    ])  # fmt: skip
    assert [one.place.recorded for one in plan.externals] == [a, number]
    assert [one.num_bytes for one in plan.externals] == [64, 8]
    ((_, base),) = plan.calls[2].views
    assert base.recorded == a


def test_weights_and_biases_have_both_signs_and_squares_have_one() -> None:
    weight, bias, square = tensor(0, 1, 8, 12), tensor(1, 2, 8), tensor(2, 3, 8, 12)
    schema = "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"
    sqrt = "aten::sqrt(Tensor self) -> Tensor"
    plan = plan_replay([
        call(0, "aten::linear", [weight, weight, bias], [], schema),
        call(1, "aten::sqrt", [square], [], sqrt),
    ])  # fmt: skip
    assert [one.bound for one in plan.externals] == [0.5, 0.1, 0]  # sqrt(3 / 12)


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), max_size=30))
def test_places_are_written_once_and_before_they_are_read(uses: list[tuple[int, ...]]) -> None:
    calls = [
        call(row, "aten::mm", [tensor(a, a // 2, 2, 2), tensor(b, b // 2, 2, 2)],
             [tensor(c, c // 2, 2, 2)])
        for row, (a, b, c) in enumerate(uses)
    ]  # fmt: skip
    assert_written_once(plan_replay(calls))


def assert_written_once(plan: ReplayPlan) -> None:
    known = {one.place.number for one in plan.externals}
    assert len(known) == len(plan.externals)
    for planned in plan.calls:
        for place, base in planned.views:
            assert base.number in known
            assert place.number not in known
            known.add(place.number)
        assert {one.number for one in places(planned.inputs)} <= known
        for one in places(planned.outputs):
            assert one.number not in known
            known.add(one.number)
        assert not {one.place.number for one in plan.externals} & set(planned.ended)
        known -= set(planned.ended)


def places(arguments: Any) -> list[ReplayPlace]:
    if isinstance(arguments, ReplayPlace):
        return [arguments]
    if isinstance(arguments, list) or type(arguments) is tuple:
        return [place for one in arguments for place in places(one)]
    return []
