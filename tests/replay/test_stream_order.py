"""Streams of a replay on a GPU: which call runs where, and after which others."""

from __future__ import annotations

import polars as pl

import nadi
from nadi.pytorch import plan_replay, replay_source
from nadi.pytorch.rerunning.order import CallStream, order_streams, recorded_streams
from nadi.pytorch.rerunning.recorded_calls import RecordedCall, TensorArgument
from tests.conftest import PairWriter

_MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"


def tensor(number: int) -> TensorArgument:
    return TensorArgument(number, 100 + number, 0, "float", (2, 2), (2, 1), "cuda:0", 4)


def product(row: int, read: int, made: int) -> RecordedCall:
    a, b = tensor(read), tensor(made)
    return RecordedCall(row, "aten::mm", _MM, (a, a), (b,), 1)


PLAN = plan_replay([product(0, 0, 1), product(1, 1, 2), product(2, 1, 3), product(3, 0, 4),
                    product(4, 2, 5)])  # fmt: skip
STREAMS = order_streams(PLAN.calls, {0: 7, 1: 20, 2: 20, 3: 7, 4: 7})


def test_a_stream_waits_once_for_the_memory_of_another() -> None:
    assert [one.stream for one in STREAMS] == [0, 1, 1, 0, 0]
    assert [one.awaited for one in STREAMS] == [(), (0,), (), (), (1,)]
    made_elsewhere = PLAN.calls[1].inputs[0].number
    assert STREAMS[1].shared == (made_elsewhere,)


def test_the_source_changes_streams_and_waits() -> None:
    text = replay_source(PLAN, device="cuda", streams=STREAMS).text
    lines = [line.strip() for line in text.splitlines() if "STREAMS" in line]
    one, other = (planned.inputs[0].number for planned in (PLAN.calls[1], PLAN.calls[4]))
    assert lines == [
        "STREAMS = [torch.cuda.current_stream(), *(torch.cuda.Stream() for _ in range(1))]",
        "torch.cuda.set_stream(STREAMS[1])", "STREAMS[1].wait_stream(STREAMS[0])",
        f"t[{one}].record_stream(STREAMS[1])", f"t[{one}].record_stream(STREAMS[1])",
        "torch.cuda.set_stream(STREAMS[0])", "STREAMS[0].wait_stream(STREAMS[1])",
        f"t[{other}].record_stream(STREAMS[0])",
    ]  # fmt: skip


def test_communication_and_calls_without_device_work_run_on_the_first_stream() -> None:
    call = RecordedCall(1, "c10d::allreduce_", "", ([tensor(0)],), (), 1)
    plan = plan_replay([product(0, 0, 1), call, product(2, 1, 2)])
    assert order_streams(plan.calls, {0: 7, 1: 20}) == [CallStream(0, (), ())] * 3


def test_the_stream_of_a_call_is_that_of_its_kernels(pair: PairWriter) -> None:
    outer = pair.op("aten::linear", 0, 50)
    pair.op("aten::mm", 5, 20, parent=outer)
    pair.op("aten::view", 60, 5)
    pair.event("cudaLaunchKernel", 8, 4, "cuda_runtime", correlation=7)
    pair.event("gemm", 20, 9, "kernel", tid=20, pid=0, stream=20, device=0, correlation=7)
    (trace,) = nadi.load_job(*pair.write()).traces
    found = recorded_streams(trace)
    names = trace.nodes["name"].cast(pl.String).gather(list(found)).to_list()
    assert {"aten::linear", "aten::mm", "cudaLaunchKernel"} <= set(names)
    assert not {"aten::view", "gemm"} & set(names)
    assert set(found.values()) == {20}
