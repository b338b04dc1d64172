"""Values that no operator of a recording made: what is written without one, and what bounds it."""

from __future__ import annotations

from typing import Any

from nadi.pytorch import ReplayPlan, plan_replay
from nadi.pytorch.rerunning.recorded_calls import RecordedCall, TensorArgument

EMPTY = "aten::empty.memory_format(SymInt[] size, *, ScalarType? dtype=None) -> Tensor"
LIFT = "aten::lift_fresh(Tensor(a) self) -> Tensor(a)"
TO = "aten::_to_copy(Tensor self, *, ScalarType? dtype=None) -> Tensor"
COPY = "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"
ADD = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
EMBEDDING = "aten::embedding(Tensor weight, SymInt[] indices) -> Tensor"
TABLE = TensorArgument(900, 901, 0, "float", (50, 8), (8, 1), "cpu", 4)


def index(number: int, storage: int) -> TensorArgument:
    return TensorArgument(number, storage, 0, "long int", (3,), (1,), "cpu", 8)


def looked_up(*calls: tuple[str, str, list[Any], list[Any]], at: TensorArgument) -> ReplayPlan:
    """Plan some calls, and one that looks up rows of a table."""
    rows = TensorArgument(910, 911, 0, "float", (3, 8), (8, 1), "cpu", 4)
    given = [*calls, ("aten::embedding", EMBEDDING, [TABLE, at], [rows])]
    return plan_replay([
        RecordedCall(row, name, schema, tuple(inputs), tuple(outputs), 1)
        for row, (name, schema, inputs, outputs) in enumerate(given)
    ])  # fmt: skip


def bounds(plan: ReplayPlan) -> dict[int, float]:
    """Return the bound of each tensor of indices that is there before, by its storage."""
    return {
        one.place.recorded.storage: one.bound for one in plan.externals
        if one.place.recorded.dtype == "long int"
    }  # fmt: skip


def test_memory_that_nobody_wrote_is_there_before() -> None:
    """``torch.tensor([1, 0, 3])`` is recorded as an empty tensor that is lifted."""
    made, lifted = index(1, 10), index(2, 10)
    plan = looked_up(
        ("aten::empty", EMPTY, [[3], 4], [made]), ("aten::lift_fresh", LIFT, [made], [lifted]),
        at=lifted,
    )  # fmt: skip
    assert bounds(plan) == {10: 50}
    assert plan.calls[0].outputs == (None,)  # it is still called
    assert plan.calls[1].inputs[0] in {one.place for one in plan.externals}


def test_the_bound_reaches_what_is_copied() -> None:
    made, copied, other = index(1, 10), index(2, 20), index(3, 30)
    plan = looked_up(
        ("aten::empty", EMPTY, [[3], 4], [made]), ("aten::_to_copy", TO, [made], [copied]),
        ("aten::copy_", COPY, [copied, other], [copied]), at=copied,
    )  # fmt: skip
    assert bounds(plan) == {10: 50, 30: 50}


def test_what_a_call_writes_first_is_made_by_its_call() -> None:
    made, source = index(1, 10), index(2, 20)
    plan = looked_up(
        ("aten::empty", EMPTY, [[3], 4], [made]), ("aten::copy_", COPY, [made, source], [made]),
        at=made,
    )  # fmt: skip
    assert bounds(plan) == {20: 50}
    assert plan.calls[0].outputs[0] == plan.calls[1].inputs[0]


def test_what_a_call_changes_is_read_first() -> None:
    made, source = index(1, 10), index(2, 20)
    plan = looked_up(
        ("aten::empty", EMPTY, [[3], 4], [made]), ("aten::add_", ADD, [made, source], [made]),
        at=made,
    )  # fmt: skip
    assert set(bounds(plan)) == {10, 20}
    assert plan.calls[0].outputs == (None,)


def test_numbers_that_become_indices_have_no_bound() -> None:
    number = TensorArgument(5, 50, 0, "float", (3,), (1,), "cpu", 4)
    copied = index(2, 20)
    plan = looked_up(("aten::_to_copy", TO, [number], [copied]), at=copied)
    assert {one.bound for one in plan.externals if one.place.recorded == number} == {0}
