"""Writes a play as PyTorch would record it: a host and a device trace for each rank."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.reference.machine import Key, Operation, Play, Program

__all__ = ["EPOCH_NS", "Operands", "record"]

EPOCH_NS = 1_700_000_000_000_000_001  # a float of microseconds could not tell it from ...000
_NUM_ELEMENTS = 1024
_SYNC_KINDS = {
    "cudaEventSynchronize": "Event Sync",
    "cudaStreamSynchronize": "Stream Sync",
    "cudaDeviceSynchronize": "Context Sync",
    "cudaStreamWaitEvent": "Stream Wait Event",
}
_CALLBACK_IDS = {
    "cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaGraphLaunch": 311,
    "cudaMemcpyAsync": 41, "cudaMemsetAsync": 51, "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147, "cudaEventSynchronize": 137, "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
}  # fmt: skip


def record(
    program: Program,
    played: Play,
    folder: Path,
    *,
    sync_events: bool = False,
    operands: Mapping[str, Operands] | None = None,
    clocks: Sequence[int] = (),
) -> dict[tuple[int, int], Key]:
    """Write ``host_R.json`` and ``device_R.json`` for each rank R.

    Parameters
    ----------
    sync_events
        Write the events that say what a call or a stream waits for, as PyTorch does with
        ``enable_cuda_sync_events``.
    operands
        What operators of these names are given and give.
    clocks
        By how much the clock of each rank is ahead, ns; by default none is.

    Returns
    -------
    dict
        The operation behind each event: its key, by rank and place in the device file.
    """
    found = {}
    for rank in range(len(program.ranks)):
        writer = _RankWriter(rank, program, played, operands or {}, sync_events=sync_events)
        writer.write(folder, EPOCH_NS + (clocks[rank] if clocks else 0))
        found.update({(rank, event): key for event, key in writer.key_of_event.items()})
    return found


@dataclass(frozen=True)
class Operands:
    """The schema of an operator, and the storages of its tensors, four bytes each."""

    schema: str = ""
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


def _lists(storages: tuple[int, ...]) -> dict:
    return {
        "values": [[1_000 + storage, storage, 0, 1, 4, "cuda:0"] for storage in storages],
        "shapes": [[1] for _ in storages], "strides": [[1] for _ in storages],
        "types": ["Tensor(float)" for _ in storages],
    }  # fmt: skip


class _RankWriter:
    def __init__(
        self, rank: int, program: Program, played: Play, operands: Mapping[str, Operands], *,
        sync_events: bool,
    ) -> None:  # fmt: skip
        self.operands = operands
        self.rank = rank
        self.program = program
        self.played = played
        self.sync_events = sync_events
        self.process = 1_000 + rank
        self.main = program.ranks[rank].threads[0].number
        self.events: list[dict] = [
            {"name": "process_name", "ph": "M", "ts": 0, "pid": self.process, "tid": 0,
             "args": {"name": "python3.12"}}
        ]  # fmt: skip
        self.nodes: list[dict] = [
            _host_node(1, "[pytorch|profiler|execution_trace|process]", 1, 0, 0),
            _host_node(2, "[pytorch|profiler|execution_trace|thread]", 1, 0, 0),
        ]
        self.key_of_event: dict[int, Key] = {}
        self.correlation: dict[Key, int] = {}
        self.external: dict[Key, int] = {}

    def write(self, folder: Path, base: int) -> None:
        mine = [op for op in self.played.operations if op.key[0] == self.rank]
        for number, op in enumerate(mine, 1):
            self.correlation[op.launcher or op.key] = number
        for op in sorted(mine, key=self.by_time):
            self.operation(op)
        groups = [
            {"pg_name": str(number), "pg_desc": f"group_{number}", "backend_config": "cuda:nccl",
             "pg_size": len(members), "ranks": list(members)}
            for number, members in self.program.groups.items() if self.rank in members
        ]  # fmt: skip
        device = {
            "schemaVersion": 1,
            "distributedInfo": {
                "backend": "nccl", "rank": self.rank, "world_size": len(self.program.ranks),
                "pg_count": len(groups), "pg_config": groups,
            },
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": base,
            "traceEvents": self.events,
        }  # fmt: skip
        host = {"schema": "1.1.1-chakra.0.0.4", "pid": self.process, "nodes": self.nodes}
        (folder / f"device_{self.rank}.json").write_text(json.dumps(device))
        (folder / f"host_{self.rank}.json").write_text(json.dumps(host))

    def by_time(self, op: Operation) -> tuple[int, int]:
        times: Mapping = self.played.times
        return times[op.start], -times[op.end]

    def operation(self, op: Operation) -> None:
        if op.category in ("cpu_op", "user_annotation"):
            args = self.operator(op)
        elif op.category == "cuda_runtime":
            args = self.call(op)
        else:
            args = self.work(op)
        place = (0, op.stream) if op.launcher else (self.process, op.key[1])
        self.key_of_event[len(self.events)] = op.key
        self.event(op.category, op.name, *place, *self.interval(op), args)

    def interval(self, op: Operation) -> tuple[int, int]:
        return self.played.times[op.start], self.played.times[op.end]

    def event(
        self, category: str, name: str, pid: int, tid: int, start: int, end: int, args: dict
    ) -> None:
        self.events.append({
            "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid,
            "ts": start / 1000, "dur": (end - start) / 1000, "args": args,
        })  # fmt: skip

    def operator(self, op: Operation) -> dict:
        """Write an operator or annotation to the host trace too."""
        number = len(self.nodes) + 1
        given = self.operands.get(op.name, Operands())
        self.nodes.append(_host_node(number, op.name, 2, number, op.key[1], given))
        return {"External id": number, "Record function id": number, "Ev Idx": number - 3}

    def call(self, op: Operation) -> dict:
        correlation = self.correlation[op.key]
        args = {
            "External id": correlation, "cbid": _CALLBACK_IDS.get(op.name, 1),
            "correlation": correlation,
        }  # fmt: skip
        if self.sync_events and op.name in _SYNC_KINDS:
            self.sync_event(op)
        return args

    def sync_event(self, op: Operation) -> None:
        """Say what a call waits for, or lets a stream wait for."""
        kind = _SYNC_KINDS[op.name]
        recorded = op.waits_for_record
        args: dict = {"cuda_sync_kind": kind}
        if kind in ("Event Sync", "Stream Wait Event"):
            args["wait_on_stream"] = self.stream_of(recorded) if recorded else -1
            args["wait_on_cuda_event_record_corr_id"] = (
                self.correlation[recorded] if recorded else -1
            )
            args["wait_on_cuda_event_id"] = 1
        stream = op.stream if kind in ("Stream Sync", "Stream Wait Event") else -1
        args |= {
            "stream": stream, "correlation": self.correlation[op.key], "device": 0, "context": 1
        }  # fmt: skip
        self.event("cuda_sync", kind, 0, stream, *self.interval(op), args)

    def stream_of(self, key: Key) -> int:
        return next(op.stream for op in self.played.operations if op.key == key)

    def work(self, op: Operation) -> dict:
        correlation = self.correlation[op.launcher]
        args = {
            "External id": correlation, "device": 0, "context": 1, "stream": op.stream,
            "correlation": correlation,
        }  # fmt: skip
        if op.group >= 0:
            members = self.program.groups[op.group]
            args |= {
                "Collective name": self.collective_name(op), "In msg nelems": _NUM_ELEMENTS,
                "Out msg nelems": _NUM_ELEMENTS, "Group size": len(members), "dtype": "Float",
                "Process Group Name": str(op.group),
                "Process Group Description": f"group_{op.group}",
                "Process Group Ranks": str(list(members)),
            }  # fmt: skip
        if op.source >= 0:
            args |= {"Src Rank": op.source, "Dst Rank": op.target}
        if op.size:
            args |= {"bytes": op.size}
        return args

    def collective_name(self, op: Operation) -> str:
        if op.source < 0:
            return "allreduce"
        return "send" if op.source == self.rank else "recv"


def _host_node(
    number: int, name: str, parent: int, rf_id: int, thread: int, given: Operands | None = None
) -> dict:
    given = given or Operands()
    attributes = (
        ("rf_id", "uint64", rf_id), ("fw_parent", "uint64", 0), ("seq_id", "int64", -1),
        ("scope", "uint64", 7), ("tid", "uint64", thread), ("fw_tid", "uint64", 0),
        ("op_schema", "string", given.schema),
    )  # fmt: skip
    return {
        "id": number, "name": name, "ctrl_deps": parent,
        "inputs": _lists(given.inputs), "outputs": _lists(given.outputs),
        "attrs": [{"name": n, "type": t, "value": v} for n, t, v in attributes],
    }  # fmt: skip
