"""Rows of a rank: what waits for what, what is in memory, and the Trace of them."""

from __future__ import annotations

import nadi
from nadi.pytorch.fake.fake_trace import summary_of, trace_of_log, trace_signature
from nadi.pytorch.fake.operation_log import (
    GroupLog,
    LoggedOperand,
    LoggedOperation,
    OperationLog,
    logged_operand_texts,
)


def tensor(number: int, storage: int = 0) -> LoggedOperand:
    return LoggedOperand(number, storage or number, 0, (2, 4), (4, 1), "c10::BFloat16", 2)


def add(
    log: OperationLog, name: str, stream: int, reads: list[LoggedOperand],
    writes: list[LoggedOperand], **columns: object,
) -> int:  # fmt: skip
    operation = LoggedOperation(name, "COMP", "kernel", stream=stream, flops=3, bytes=7)
    return log.add(operation._replace(**columns), [*reads], [*writes], reads, writes)


def test_a_stream_is_in_order_and_streams_wait_for_data_and_events() -> None:
    log, (x, y, z) = OperationLog(), map(tensor, (1, 2, 3))
    made = add(log, "a", 0, [], [x])
    read = add(log, "b", 1, [x], [y])
    third = add(log, "c", 0, [], [z])
    over = add(log, "d", 0, [], [x])  # which waits for who read it elsewhere
    log.wait(2, third)
    last = add(log, "e", 2, [], [])
    assert log.waits[read] == ((made, "data"),)
    assert log.waits[third] == ((made, "ctrl"),)
    assert log.waits[over] == ((made, "data"), (read, "data"), (third, "ctrl"))
    assert log.waits[last] == ((third, "ctrl"),)


def test_views_are_their_base() -> None:
    log, base, view = OperationLog(), tensor(1), tensor(2, storage=1)
    made = add(log, "a", 0, [], [base])
    log.add(LoggedOperation("aten::view", "METADATA", "operator"), [base], [view], [base], [])
    used = add(log, "b", 1, [view], [])
    assert log.waits[used] == ((made, "data"),)


def test_memory_is_counted_as_it_comes_and_goes() -> None:
    log = OperationLog()
    log.allocate(1, 100)
    log.clear()
    assert (log.first_live, log.peak) == (100, 100)
    log.allocate(2, 50)
    add(log, "a", 0, [], [tensor(2)])
    log.free(1)
    log.allocate(2, 20)  # it shrinks
    log.free(2)
    log.free(2)
    assert (log.live, log.peak, log.peak_row) == (0, 150, 0)
    assert log.freed == [(0, 1), (0, 2)]


def test_operands_read_back() -> None:
    log, groups = OperationLog(), GroupLog(0, 1)
    inputs = [tensor(1), [tensor(2), tensor(3)], None, 2, 0.5, True, float("-inf"), "sum", object()]
    log.add(LoggedOperation("aten::cat", "COMP", "kernel", stream=0), inputs, [tensor(4)], [], [])
    trace = trace_of_log(log, groups, 1, {})
    assert nadi.trace.validate_trace(trace).is_empty()
    told = trace.operands.select("is_output", "position", "item", "type", "value").rows()
    assert [row[3] for row in told[:3]] == ["Tensor(c10::BFloat16)"] * 3
    values = [row[4] for row in told]
    assert values[3:] == ["<None>", "2", "0.5", "true", "-inf", "sum", "<object>", ""]
    assert trace.tensors["shape"].to_list() == [[2, 4]] * 4
    assert trace.tensors["storage_id"].to_list() == [1, 2, 3, 4]
    assert logged_operand_texts("inputs", []) == {}


def rank_log(rank: int, size: int) -> nadi.Trace:
    log, groups = OperationLog(), GroupLog(rank, 4)
    for members in ((0, 1), (2, 3)):
        groups.made(members, "pairs")
    own = (0, 1) if rank < 2 else (2, 3)
    groups.named_as("7", own, "pairs")
    communication = {"kind": "COMM_COLL", "comm_type": "all_reduce", "comm_bytes": size}
    add(log, "c10d::allreduce_", 1, [tensor(1)], [tensor(1)], group="7", **communication)
    add(log, "c10d::send", 2, [tensor(1)], [], kind="COMM_SEND", comm_type="send", comm_bytes=16,
        src=rank, dst=(rank + 1) % 4, tag=0)  # fmt: skip
    return trace_of_log(log, groups, 1, {("a.py:1", "1.0"): 2})


def test_ranks_that_do_the_same_have_one_signature() -> None:
    first, second, last = (rank_log(rank, 64) for rank in (0, 2, 3))
    assert first.groups["name"].to_list() == ["1"]
    assert second.groups["name"].to_list() == ["2"]
    assert second.groups["ranks"].to_list() == [[2, 3]]
    assert trace_signature(first) == trace_signature(second)
    assert trace_signature(last) != trace_signature(second)  # its peer is elsewhere
    assert trace_signature(rank_log(0, 65)) != trace_signature(first)
    summary = summary_of(first)
    assert (summary.collectives, summary.messages, summary.comm_bytes) == (1, 1, 80)
    assert first.issues["code"].to_list() == ["fake.no-times", "fake.value"]
    assert "(a.py:1)" in first.issues["detail"][1]
