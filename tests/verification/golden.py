"""A small pair of traces with what Chakra's tools would make of it, written down by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conftest import PairWriter
from tests.reference.chakra_messages import AttributeProto, GlobalMetadata, Node, write_messages

THREAD = "[pytorch|profiler|execution_trace|thread]"
PROCESS = "[pytorch|profiler|execution_trace|process]"


def write_pair(pair: PairWriter) -> tuple[Path, Path]:
    """Write a thread with two operations that start together, a launch, a kernel and a memset.

    ``outer`` and ``inner`` start together; ``aten::mm`` launches; the collective is NCCL's.
    """
    pair.nodes.append({"id": 2, "name": THREAD, "ctrl_deps": 1})
    outer = pair.op("outer", 1000, 100, parent=2)
    pair.op("inner", 1000, 40, parent=outer)
    launching = pair.op("aten::mm", 1200, 50, parent=2)
    pair.event("cudaLaunchKernel", 1210, 5, "cuda_runtime", correlation=1)
    pair.event("cudaMemsetAsync", 1220, 5, "cuda_runtime", correlation=2)
    for name, ts, correlation in (("gemm", 1230, 1), ("Memset (Device)", 1250, 2)):
        category = "gpu_memset" if correlation == 2 else "kernel"
        pair.event(name, ts, 10, category, pid=0, tid=7, stream=7, device=0,
                   correlation=correlation)  # fmt: skip
    assert launching == 5
    return pair.write()


# id, name, parent, rf_id, start and duration in us, exclusive in us, data dependencies
_HOST: list[tuple[int, str, int, int, tuple[float, float, float] | None, list[int]]] = [
    (0, PROCESS, 0, 0, None, []),
    (1, THREAD, 0, 0, None, []),
    (2, "outer", 1, 3, (1000, 100, 100), [1]),  # it keeps the time of inner
    (3, "inner", 2, 4, (1000, 40, 40), [2]),
    (4, "aten::mm", 1, 5, (1200, 50, 50), [3]),
]


def write_golden(folder: Path) -> Path:
    """Write the linker's and the converter's file."""
    folder.mkdir()
    nodes: list[dict[str, Any]] = []
    messages = []
    for number, name, parent, rf_id, times, data_deps in _HOST:
        attrs = [{"name": n, "value": v} for n, v in (("rf_id", rf_id), ("seq_id", -1), ("tid", 1))]
        node = {"id": number, "name": name, "ctrl_deps": parent, "attrs": attrs}
        if times:
            node |= dict(zip(("ts", "inclusive_dur", "exclusive_dur"), times, strict=True))
        nodes.append(node)
        if number:
            micros = int(times[2]) if times else 0
            messages.append(Node(id=number, name=name, type=4, ctrl_deps=[parent],
                                 data_deps=data_deps, duration_micros=micros))  # fmt: skip
    nodes.append({"id": 5, "name": "gemm", "ctrl_deps": 4, "cat": "kernel", "stream": 7, "ts": 1230,
                  "inclusive_dur": 10, "exclusive_dur": 10,
                  "attrs": [{"name": "rf_id", "value": 5}]})  # fmt: skip
    attribute = AttributeProto(name="is_cpu_op", bool_val=False)
    messages.append(Node(id=5, name="gemm", type=4, ctrl_deps=[4], data_deps=[4],
                         duration_micros=10, attr=[attribute]))  # fmt: skip
    (folder / "et_plus.json.gz").write_text(json.dumps({"nodes": nodes}))
    (folder / "out.et.gz").write_bytes(write_messages(GlobalMetadata(), messages))
    return folder
