"""The module and phase of operations: against a slow oracle, and case by case."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nadi
from nadi.graph.event_graph import EventGraph
from nadi.graph.module_tree import PHASES, find_modules
from tests.amounts import examples
from tests.conftest import PairWriter
from tests.reference.naive_modules import modules_of

CALL = "nn.Module: "
CALLS_MODULES = "nn/modules/module.py(1787): _call_impl"
EVALUATION = "autograd::engine::evaluate_function: "


class _Program:
    """A random program: modules on one or two threads, and the backward on these or another."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.events: list[dict[str, Any]] = []
        self.clock = 0
        self.correlation = 0
        self.on_stream = 0
        self.made: list[tuple[int, int, int]] = []
        for number, thread in enumerate((1, 2)[: self.random.choice((1, 2))]):
            self.sequence = self.random.choice((10, 12, 30))
            for root in range(self.random.choice((1, 2))):
                self.module(f"Net_{root}", thread, number + 1, 0)
            self.operator(thread, number + 1, makes=self.random.random() < 0.5)
        for made in reversed(self.made):
            self.node(*made, tid=self.random.choice((made[1], 3)))
        with_step = self.begin("Optimizer.step#SGD.step", 1, "user_annotation")
        self.leaf("aten::add_", 1)
        self.end(with_step)

    def begin(self, name: str, tid: int, cat: str = "cpu_op", **args: int) -> dict[str, Any]:
        self.clock += 1
        event = {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": self.clock,
                 "dur": 0, "args": dict(args)}  # fmt: skip
        self.events.append(event)
        return event

    def end(self, event: dict[str, Any]) -> None:
        self.clock += 1
        event["dur"] = self.clock - event["ts"]

    def leaf(self, name: str, tid: int) -> None:
        event = self.begin(name, tid)
        if self.random.random() < 0.3:
            self.correlation += 1
            same = {"correlation": self.correlation}
            self.end(self.begin("cudaLaunchKernel", tid, "cuda_runtime", **same))
            self.on_stream = max(self.on_stream, self.clock) + 7
            self.events.append({
                "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7,
                "ts": self.on_stream - 7, "dur": 5, "args": {"stream": 7, "device": 0, **same},
            })  # fmt: skip
        self.end(event)

    def module(self, name: str, tid: int, number: int, depth: int) -> None:
        event = self.begin(f"{CALL}{name}", tid, "python_function")
        for _ in range(self.random.choice((1, 2, 3))):
            what = self.random.random()
            if what < 0.4 and depth < 3:
                self.module(f"{'ABC'[depth]}_{self.random.choice((0, 1))}", tid, number, depth + 1)
            elif what < 0.5:
                frame = self.begin(f"torch/{CALLS_MODULES}", tid, "python_function")
                self.operator(tid, number, makes=True)
                self.end(frame)
            else:
                self.operator(tid, number, makes=self.random.random() < 0.7)
        self.end(event)

    def operator(self, tid: int, number: int, *, makes: bool) -> None:
        name, same = "aten::linear", {"Sequence number": self.sequence}
        event = self.begin(name, tid, **same)
        if self.random.random() < 0.5:
            self.end(self.begin("aten::t", tid, **same))
        if makes:
            inner = self.begin("aten::addmm", tid, **same)
            self.made.append((self.sequence, tid, number))
            self.sequence += 1
            self.leaf("aten::copy_", tid)
            self.end(inner)
        self.end(event)

    def node(self, sequence: int, forward: int, number: int, *, tid: int) -> None:
        args = {"Sequence number": sequence, "Fwd thread id": number, "forward thread": forward}
        outer = self.begin(f"{EVALUATION}AddmmBackward0", tid, **args)
        inner = self.begin("AddmmBackward0", tid, **args)
        self.leaf("aten::mm", tid)
        self.end(inner)
        self.end(outer)
        if self.random.random() < 0.5:
            outer = self.begin(f"{EVALUATION}torch::autograd::AccumulateGrad", tid)
            inner = self.begin("torch::autograd::AccumulateGrad", tid)
            self.leaf("aten::detach", tid)
            self.end(inner)
            self.end(outer)


def graph_of(events: list[dict[str, Any]], folder: Path) -> EventGraph:
    file = folder / "device.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return nadi.build_graph(nadi.load_job(file))


def found(graph: EventGraph) -> list[tuple[str, str]]:
    """Give the path and phase of each operation, by the position of its event."""
    tree = find_modules(graph)
    paths = [*tree.paths, ""]
    of_event = {
        event: (paths[module], PHASES[phase])
        for event, module, phase in zip(
            graph.numbers("event").tolist(), tree.module.tolist(), tree.phase.tolist(), strict=True
        )
    }
    return [of_event[k] for k in sorted(of_event)]


@pytest.mark.parametrize("seed", range(examples(60)))
def test_as_operation_by_operation(seed: int, tmp_path: Path) -> None:
    program = _Program(seed)
    assert found(graph_of(program.events, tmp_path)) == modules_of(program.events)


@pytest.mark.parametrize("with_stacks", [False, True])
def test_functions_and_annotations_count_beside_modules_but_where_all_functions_are_recorded(
    pair: PairWriter, *, with_stacks: bool
) -> None:
    pair.event("train.py(9): penalty", 0, 100, "python_function")
    pair.op("aten::mm", 10, 80)
    pair.event(f"{CALL}Net_0", 200, 500, "python_function")
    pair.event("head", 210, 200, "user_annotation")
    pair.event(f"{CALL}Linear_0", 220, 100, "python_function")
    pair.op("aten::addmm", 230, 80)
    if with_stacks:
        pair.event(CALLS_MODULES, 215, 110, "python_function")
    tree = find_modules(nadi.build_graph(nadi.load_job(*pair.write())))
    assert tree.is_recorded
    assert tree.paths == (
        ("Net_0", "Net_0.Linear_0") if with_stacks else
        ("train.py(9): penalty", "Net_0", "Net_0.head", "Net_0.head.Linear_0")
    )  # fmt: skip
    names = f"{CALL}Net_0", f"{CALL}Linear_0"
    assert tuple(one for one in tree.names if one.startswith(CALL)) == names


def test_the_oracle_meets_every_case() -> None:
    seen = {place for seed in range(60) for place in modules_of(_Program(seed).events)}
    assert {phase for _, phase in seen} == set(PHASES)
    assert {phase for path, phase in seen if "." in path} == {"forward", "backward"}
    assert {phase for path, phase in seen if not path} == {"backward", "optimizer", "other"}
    numbers = [{made[0] for made in p.made if made[1] == tid} for seed in range(60)
               for p in [_Program(seed)] for tid in (1, 2)]  # fmt: skip
    assert any(one & other for one, other in zip(numbers[::2], numbers[1::2], strict=True))


def test_a_parent_precedes_its_modules_and_paths_are_distinct(tmp_path: Path) -> None:
    for seed in range(10):
        tree = find_modules(graph_of(_Program(seed).events, tmp_path))
        assert (tree.parent < np.arange(len(tree.paths))).all()
        assert len(set(tree.paths)) == len(tree.paths)
        for path, around in zip(tree.paths, tree.parent.tolist(), strict=True):
            assert path.rpartition(".")[0] == (tree.paths[around] if around >= 0 else "")


def test_what_runs_again_in_the_backward_is_the_same_module(pair: PairWriter) -> None:
    """Activation checkpointing calls modules again, within a node of the backward."""
    python = "python_function"
    pair.event(f"{CALL}Net_0", 0, 100, python)
    pair.event("CheckpointFunction", 5, 50, **{"Sequence number": 3})
    pair.event(f"{CALL}Block_1", 10, 40, python)
    pair.event("aten::mm", 20, 10)
    node = {"Sequence number": 3, "Fwd thread id": 1}
    pair.event(f"{EVALUATION}CheckpointFunctionBackward", 200, 100, tid=2, **node)
    pair.event(f"{CALL}Block_1", 210, 40, python, tid=2)
    pair.event("aten::mm", 220, 10, tid=2)
    places = found(graph_of(pair.events, pair.folder))
    assert places[3] == ("Net_0.Block_1", "forward")
    assert places[5:] == [("Net_0.Block_1", "backward")] * 2
    assert places[4] == ("Net_0", "backward")


def test_annotations_are_modules_where_none_were_recorded(pair: PairWriter) -> None:
    annotation = "user_annotation"
    pair.event("ProfilerStep#1", 0, 1000, annotation)
    pair.event("## forward ##", 10, 190, annotation)
    pair.event("layers.2", 20, 100, annotation)
    pair.event("layers.2.feed_forward", 30, 50, annotation)
    pair.event("aten::mm", 40, 10, **{"Sequence number": 3})
    pair.event("MmBackward0", 300, 10, **{"Sequence number": 3, "Fwd thread id": 1})
    pair.event("nccl:all_reduce", 400, 10, annotation)
    graph = graph_of(pair.events, pair.folder)
    tree = find_modules(graph)
    assert not tree.is_recorded
    assert tree.paths == ("layers.2", "layers.2.feed_forward")
    assert found(graph) == [
        ("", "other"), ("", "other"), ("layers.2", "forward"), ("layers.2.feed_forward", "forward"),
        ("layers.2.feed_forward", "forward"), ("layers.2.feed_forward", "backward"), ("", "other"),
    ]  # fmt: skip


def test_gradients_that_are_exchanged_belong_to_no_module(pair: PairWriter) -> None:
    """A bucket of DistributedDataParallel has gradients of several modules."""
    pair.event(f"{CALL}Net_0", 0, 100, "python_function")
    pair.event("aten::mm", 20, 10, **{"Sequence number": 3})
    node = {"Sequence number": 3, "Fwd thread id": 1}
    pair.event(f"{EVALUATION}MmBackward0", 200, 10, **node)
    pair.event(f"{EVALUATION}torch::autograd::AccumulateGrad", 220, 10)
    pair.event(f"{EVALUATION}torch::autograd::AccumulateGrad", 240, 50)
    pair.event("c10d::allreduce_", 250, 10)
    assert found(graph_of(pair.events, pair.folder))[2:] == [
        ("Net_0", "backward"), ("Net_0", "backward"), ("", "backward"), ("", "backward"),
    ]  # fmt: skip


def test_nesting_ends_somewhere(pair: PairWriter) -> None:
    """A file can say anything; a program's recursion is not so deep."""
    for depth in range(300):
        pair.event(f"{CALL}Net_0", depth, 1000 - 2 * depth, "python_function")
    pair.event("aten::mm", 400, 10)
    tree = find_modules(graph_of(pair.events, pair.folder))
    assert len(tree.paths) == 200
    assert tree.module[-1] == 199
    assert (tree.module >= 0).all()


def test_threads_are_told_apart_where_numbers_repeat(pair: PairWriter) -> None:
    """Sequence numbers count per thread; the thread of the forward is named by its own number."""
    for tid, name in ((1, "Left_0"), (2, "Right_0")):
        pair.event(f"{CALL}{name}", 0, 100, "python_function", tid=tid)
        for number in range(3 - tid + 1):
            pair.event("aten::mm", 10 + 20 * number, 10, tid=tid, **{"Sequence number": number})
    for number in range(3):
        for said in (1, 2)[: 2 if number < 2 else 1]:
            args = {"Sequence number": number, "Fwd thread id": said}
            pair.event("MmBackward0", 200 + 50 * number + 20 * said, 10, tid=3, **args)
    places = found(graph_of(pair.events, pair.folder))[-5:]
    assert [path for path, _ in places] == ["Left_0", "Right_0", "Left_0", "Right_0", "Left_0"]
