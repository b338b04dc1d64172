"""Small files as other tools write them, made of plain values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from nadi.files.timeline.perfetto import field

__all__ = [
    "NSIGHT_START", "inspector_log", "memory_snapshot", "nsight_export", "nsight_tables", "pftrace",
    "rocprof_object", "xplane", "xplane_with_steps",
]  # fmt: skip

NSIGHT_START = 1_700_000_000_000_000_000
_THREAD = (1 << 48) | (200 << 24) | 201  # of process 200
_PROCESS = (1 << 48) | (200 << 24)
_DEVICE = "CUPTI_ACTIVITY_KIND_"
_Rows = Sequence[Mapping[str, Any]]


def nsight_tables(thread: int = _THREAD, device: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Give the tables of an export with two operators, a range, and a launch of each kind."""
    process = thread >> 24 << 24
    on_device = {"deviceId": device, "streamId": 7, "contextId": 1, "globalPid": process}
    kernel = {"demangledName": 3, "shortName": 4, "gridX": 2, "gridY": 1, "gridZ": 1, "blockX": 32,
              "blockY": 1, "blockZ": 1, "registersPerThread": 16, "staticSharedMemory": 0,
              "dynamicSharedMemory": 64, "graphNodeId": None}  # fmt: skip
    push = {"eventType": 59, "globalTid": thread, "endGlobalTid": None, "textId": None,
            "domainId": 0}  # fmt: skip
    return {
        "NVTX_EVENTS": [
            {"start": 1_000_001, "end": 1_009_000, "text": "step", **push},
            {"start": 1_000_500, "end": 1_004_000,
             "text": "aten::mm, seq = 17, op_id = 5, sizes = [[2, 3], [3, 4]]", **push},
            {"start": 1_005_000, "end": 1_006_000, "text": "nccl:all_reduce, op_id = 6", **push},
        ],
        f"{_DEVICE}RUNTIME": [
            {"start": 1_001_000, "end": 1_002_003, "eventClass": 0, "globalTid": thread,
             "correlationId": 11, "nameId": 1, "returnValue": 0},
            {"start": 1_002_500, "end": 1_003_000, "eventClass": 1, "globalTid": thread,
             "correlationId": 12, "nameId": 2, "returnValue": 0},
        ],
        f"{_DEVICE}KERNEL": [
            {"start": 1_010_000, "end": 1_030_007, "correlationId": 11, **on_device, **kernel},
        ],
        f"{_DEVICE}MEMCPY": [
            {"start": 1_031_000, "end": 1_032_000, "correlationId": 12, "bytes": 4096,
             "copyKind": 2, **on_device},
        ],
        f"{_DEVICE}SYNCHRONIZATION": [
            {"start": 1_032_100, "end": 1_032_200, "correlationId": 13, "syncType": 3,
             "eventId": 2**32 - 1, **on_device},
        ],
        "StringIds": [
            {"id": 1, "value": "cudaLaunchKernel_v7000"}, {"id": 2, "value": "cuMemcpyDtoH_v2"},
            {"id": 3, "value": 'gemm<"é">(int)'}, {"id": 4, "value": "gemm"},
        ],
        "META_DATA_EXPORT": [
            {"name": "EXPORT_PRODUCT_NAME", "value": "NVIDIA Nsight Systems"},
            {"name": "EXPORT_SCHEMA_VERSION", "value": "3.25.0"},
        ],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": NSIGHT_START}],
    }  # fmt: skip


def nsight_export(tables: Mapping[str, _Rows] | None = None, *more: str) -> bytes:
    """Write tables as SQLite does; ``more`` are statements of their own."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("PRAGMA page_size = 512")
        for name, rows in (nsight_tables() if tables is None else tables).items():
            columns = list(rows[0])
            database.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            places = ", ".join("?" for _ in columns)
            values = [[row.get(column) for column in columns] for row in rows]
            database.executemany(f"INSERT INTO {name} VALUES ({places})", values)
        for statement in more:
            database.execute(statement)
        database.commit()
        return bytes(database.serialize())


def rocprof_object() -> dict[str, Any]:
    """Give a file of rocprofv3 with a kernel, a copy and their calls."""
    kinds = [{"kind": "NONE", "operations": []},
             {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel", "hipMemcpyAsync"]},
             {"kind": "MEMORY_COPY", "operations": ["NONE", "HOST_TO_DEVICE"]},
             {"kind": "KERNEL_DISPATCH", "operations": ["NONE", "ENQUEUE", "END"]}]  # fmt: skip

    def record(kind: int, operation: int, start: int, end: int, **more: Any) -> dict[str, Any]:
        return {"size": 1, "kind": kind, "operation": operation, "thread_id": 9,
                "correlation_id": {"internal": more.pop("of"), "external": 0},
                "start_timestamp": start, "end_timestamp": end, **more}  # fmt: skip

    dispatch = {
        "agent_id": {"handle": 70}, "queue_id": {"handle": 3}, "kernel_id": 8,
        "workgroup_size": {"x": 64, "y": 1, "z": 1}, "grid_size": {"x": 130, "y": 2, "z": 1},
    }  # fmt: skip
    return {"rocprofiler-sdk-tool": [{
        "metadata": {"pid": 900}, "strings": {"buffer_records": kinds},
        "agents": [{"id": {"handle": 60}, "type": 1, "logical_node_type_id": 0},
                   {"id": {"handle": 70}, "type": 2, "logical_node_type_id": 5}],
        "kernel_symbols": [{"kernel_id": 8, "formatted_kernel_name": "gemm<\"é\">"}],
        "buffer_records": {
            "hip_api": [record(1, 0, 1_000, 2_001, of=11), record(1, 1, 3_000, 4_000, of=12)],
            "kernel_dispatch": [record(3, 2, 10_000, 30_007, of=11, dispatch_info=dispatch,
                                       stream_id={"handle": 2})],
            "memory_copy": [record(2, 1, 40_000, 41_000, of=12, bytes=4096,
                                   dst_agent_id={"handle": 70}, src_agent_id={"handle": 60},
                                   stream_id={"handle": 2})],
            "scratch_memory": [record(0, 0, 1, 2, of=0)],
        },
    }]}  # fmt: skip


def _message(*fields: tuple[int, Any]) -> bytes:
    """Write a message of numbers, texts, bytes, and messages as lists of fields."""
    return b"".join(
        field(number, _message(*value) if isinstance(value, list) else value)
        for number, value in fields
    )


def pftrace(*more: list[tuple[int, Any]], start: int = 1_700_000_000_000_000_000) -> bytes:
    """Write a recording as PyTorch does: two operators, a call, a kernel and a copy of it.

    ``more`` are packets after these.
    """
    args = [(4, [(10, "External id"), (4, 7)]), (4, [(10, "Input Dims"), (12, [(12, [(4, 2)])])])]
    slices: tuple[tuple[int, int, int, int, list[Any]], ...] = (  # name, category, begin, end
        (1, 1, 0, 90_000, args), (2, 1, 10_000, 50_000, []),
        (3, 2, 20_000, 30_001, [(4, [(10, "correlation"), (4, 11)])]),
    )  # fmt: skip
    said = {"device id": "3", "stream id": "7", "correlation": "11", "dtype": "Float"}
    extra = [(6, [(1, key), (2, value)]) for key, value in said.items()]
    packets: list[list[tuple[int, Any]]] = [
        [(8, start), (10, 1), (6, [(1, [(1, 6), (2, start)]), (1, [(1, 1), (2, start)])])],
        [(60, [(1, 1), (3, [(1, 900), (6, "python")])])],
        [(60, [(1, 2), (5, 1), (4, [(1, 900), (2, 901), (5, "thread 901")])])],
        [(10, 1), (13, 1), (12, [
            *((2, [(1, k), (2, name)]) for k, name in enumerate(
                ("aten::mm", "aten::t", "cudaLaunchKernel", 'gemm<"é">'), 1)),
            (1, [(1, 1), (2, "cpu_op")]), (1, [(1, 2), (2, "cuda_runtime")]),
            (24, [(1, 1), (2, "Kernel")]), (24, [(1, 2), (2, "Memcpy")]),
            (24, [(1, 100), (2, "[07] stream 7")]),
        ])],
        *([(8, start + begin), (11, [(9, 1), (11, 2), (10, name), (3, category), *said])]
          for name, category, begin, _, said in slices),
        *([(8, start + end), (11, [(9, 2), (11, 2)])] for _, _, _, end, _ in slices),
        [(8, start + 40_000), (53, [
            (1, 1), (2, 20_007), (11, 3), (13, 100), (14, 1), (20, 4), *extra,
            (21, [(1, [(1, 4), (2, 2), (3, 1)]), (2, [(1, 128), (2, 1), (3, 1)])])])],
        [(8, start + 61_000), (53, [
            (1, 2), (2, 1_000), (11, 3), (13, 100), (14, 2), (6, [(1, "bytes"), (2, "4096")])])],
        *more,
    ]  # fmt: skip
    return b"".join(field(1, _message(*packet)) for packet in packets)


def memory_snapshot() -> dict[str, Any]:
    """Give a snapshot of a device: 700 bytes from before, two allocations, a release, a segment."""
    line = {"name": "forward", "filename": "/home/me/model/train.py", "line": 7}
    inside = {"name": "linear", "filename": "/x/torch/nn/functional.py", "line": 3}
    backward = {
        "name": "torch::autograd::generated::MmBackward0::apply(x)",
        "filename": "",
        "line": 0,
    }

    def entry(action: str, address: int, size: int, time: int, *frames: Any) -> dict[str, Any]:
        return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time,
                "frames": list(frames)}  # fmt: skip

    def block(address: int, size: int, requested: int, state: str) -> dict[str, Any]:
        return {"address": address, "size": size, "requested_size": requested, "state": state,
                "frames": []}  # fmt: skip

    return {
        "segments": [
            {"device": 0, "address": 0, "total_size": 4096, "stream": 0, "segment_type": "small",
             "blocks": [block(0, 1024, 700, "active_allocated"), block(1024, 512, 500, "inactive"),
                        block(1536, 2560, 0, "inactive")]},
            {"device": 0, "address": 8192, "total_size": 2048, "stream": 0, "segment_type": "large",
             "blocks": [block(8192, 2048, 2000, "active_allocated")]},
        ],
        "device_traces": [[
            entry("alloc", 1024, 500, 1_000, inside, line),
            entry("segment_alloc", 8192, 2048, 2_000),
            entry("alloc", 8192, 2000, 2_001, backward),
            entry("free_requested", 1024, 500, 3_000), entry("free_completed", 1024, 500, 3_001),
        ]],
        "external_annotations": [{"stage": "START", "name": "step", "time_us": 1_500},
                                 {"stage": "END", "name": "step", "time_us": 2_500}],
    }  # fmt: skip


def xplane() -> bytes:
    """Write an XSpace of a host and a GPU: a launched kernel, a copy, two ranges of a thread."""
    start = 1_700_000_000_000_000_000

    def table(number: int, names: Mapping[int, str]) -> list[tuple[int, Any]]:
        return [(number, [(1, key), (2, [(1, key), (2, name)])]) for key, name in names.items()]

    def event(
        kind: int, offset: int, length: int, *stats: list[tuple[int, Any]]
    ) -> tuple[int, Any]:
        return 4, [(1, kind), (2, offset), (3, length), *((4, stat) for stat in stats)]

    stats = {1: "correlation_id", 2: "hlo_op", 3: "fusion.1", 4: "kernel_details",
             5: "grid:4,2,1 block:64,1,1", 6: "memcpy_details", 7: "size:4096 async:1"}  # fmt: skip
    correlation, operation = [(1, 1), (3, 11)], [(1, 2), (7, 3)]
    host = [(2, "/host:CPU"), *table(5, stats), *table(4, {
        1: "hipLaunchKernel", 2: "PjitFunction(f)", 3: "$train.py:3 step",
        4: "$profiler.py:101 start_trace"}),
        (3, [(1, 7), (2, "Host Threads/7"), (3, 1_000), event(1, 500, 2_001_400, correlation,
                                                              operation)]),
        (3, [(1, 99), (2, "python3"), (3, 0), event(2, 0, 9_000_000), event(3, 1_000, 8_000_000),
             event(4, 0, 99_000_000)])]  # fmt: skip
    device = [(2, "/device:GPU:3"), *table(5, stats), *table(4, {1: "fusion.kd", 2: "MemcpyD2H"}),
              (3, [(1, 1), (2, "Stream #17(Kernel)"), (3, 5_000),
                   event(1, 0, 3_000_000, correlation, [(1, 4), (5, "grid:4,2,1 block:64,1,1")]),
                   event(2, 4_000_000, 1_000_000, [(1, 6), (7, 7)])]),
              (3, [(1, 2), (2, "XLA Modules"), (3, 5_000), event(1, 0, 5_000_000)])]  # fmt: skip
    environment = [(2, "Task Environment"), *table(5, {1: "profile_start_time"}),
                   (6, [(1, 1), (3, start)])]  # fmt: skip
    return _message((1, host), (1, device), (1, environment), (4, "host"))


def xplane_with_steps(on_host: bool, steps: int = 3) -> bytes:
    """Write an XSpace of a TPU in which steps are marked, by the program or by the device alone."""

    def table(number: int, *names: str) -> list[tuple[int, Any]]:
        return [(number, [(1, key), (2, [(1, key), (2, name)])])
                for key, name in enumerate(names, 1)]  # fmt: skip

    def events(kind: Callable[[int], int], length: int, *stats: Any) -> list[tuple[int, Any]]:
        return [(4, [(1, kind(n)), (2, n * 10_000_000), (3, length),
                     *((4, [(1, key), (4, value + n)]) for key, value in stats)])
                for n in range(steps)]  # fmt: skip

    numbers = [str(n + 7) for n in range(steps)]
    marks, work = events(lambda n: n + 2, 9_000_000), events(lambda _: 1, 5_000_000)
    device = [(2, "/device:TPU:0"), *table(4, "fusion.1", *numbers),
              (3, [(1, 1), (2, "Steps"), (3, 1_000), *marks]),
              (3, [(1, 2), (2, "XLA Ops"), (3, 1_500), *work])]  # fmt: skip
    ranges = events(lambda _: 1, 9_500_000, (1, 40))
    host = [(2, "/host:CPU"), *table(5, "step_num"), *table(4, "train"),
            (3, [(1, 99), (2, "python3"), (3, 900), *ranges])]  # fmt: skip
    return _message(*([(1, host)] if on_host else []), (1, device))


def inspector_log(rank: int = 0, ranks: int = 4) -> bytes:
    """Write what the Inspector does on a rank that waits longer the lower its number is."""
    lines = []
    for number, (name, size, time) in enumerate(
        [("AllReduce", 1 << 20, 50.0), ("AllReduce", 1 << 20, 70.0), ("AllGather", 1 << 10, 20.0)]
    ):
        traffic = size * (1 if name == "AllReduce" else ranks)
        took = time + 5 * (ranks - 1 - rank)
        algbw = traffic / 1000 / took
        bus = algbw * (ranks - 1) / ranks * (2 if name == "AllReduce" else 1)
        lines.append({
            "header": {"id": "0xab", "rank": rank, "n_ranks": ranks, "nnodes": 2},
            "metadata": {"inspector_output_format_version": "v4.0", "dump_timestamp_us": 17},
            "coll_perf": {"coll": name, "coll_sn": number, "coll_msg_size_bytes": size,
                          "coll_exec_time_us": took, "coll_timing_source": "kernel_gpu",
                          "coll_algobw_gbs": algbw, "coll_busbw_gbs": bus},
        })  # fmt: skip
    lines.append({**lines[0], "coll_perf": None, "p2p_perf": {"p2p": "Send"}})
    return b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"
