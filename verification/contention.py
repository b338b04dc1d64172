"""Kernels beside communication: what a recording tells of them, on a real one and on made ones.

Usage: python verification/contention.py [FOLDER]

The folder is one of a recording whose kernels overlap communication; by default a step of
ResNet-50 on two A100 (``traces/gpu_resnet_pair``). Its kernels that have run beside
communication three times, and alone, are predicted from the others: the time alone,
times the ratio that all but the predicted one tell. Errors are sums of absolute differences over
the sum of times. Recordings are made with known ratios, and with shapes that hide other work.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _report import SHARED, Checks

import nadi
from nadi.graph.contention import learn_contention, learned_ratio, runs_of_kernels

FEWEST = 3  # times beside communication: two others tell the ratio
MOST_ERROR = 0.085
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def leave_one_out(job: nadi.Job) -> dict[str, float]:
    """Predict each time beside communication from all others of its kernel."""
    sums = {"alone": 0.0, "own ratio": 0.0, "time": 0.0}
    count = kernels = 0
    for group in runs_of_kernels(job).iter_rows(named=True):
        duration = np.array(group["duration"], dtype=np.float64)
        share = np.array(group["beside"]) / np.maximum(duration, 1)
        used = ~np.array(group["is_shared"], dtype=bool)
        alone, beside = duration[used & (share == 0)], np.flatnonzero(used & (share > 0.9))
        if group["shapes"] is None or not alone.size or beside.size < FEWEST:
            continue
        kernels += 1
        for one in beside:
            others = beside[beside != one]
            found = learned_ratio(alone, duration[others], share[others])
            ratio = 1.0 if isinstance(found, str) else found.ratio
            usual = float(np.median(alone))
            # of its work, the part beside communication takes longer
            predicted = usual / (1 - share[one] + share[one] / ratio)
            sums["alone"] += abs(usual - duration[one])
            sums["own ratio"] += abs(predicted - duration[one])
            sums["time"] += duration[one]
            count += 1
    return {name: sums[name] / sums["time"] for name in ("alone", "own ratio")} | {
        "kernels": kernels, "times": count,
    }  # fmt: skip


def made(times: list[tuple[str, float, float, Any]]) -> nadi.Job:
    """Record kernels one after the other: name, duration, of that beside communication, shapes."""
    events: list[dict[str, Any]] = []

    def event(name: str, start: float, dur: float, kind: str, **args: Any) -> None:
        events.append({"ph": "X", "cat": kind, "name": name, "pid": 7, "tid": 1, "ts": start,
                       "dur": dur, "args": args})  # fmt: skip

    number, at = 0, 1_000_000.0
    for name, duration, beside, dims in times:
        for work, length, stream in ((NCCL, beside, 20), (name, duration, 7)):
            if not length:
                continue
            number += 1
            call = 3.0 * number
            event("aten::mm", call, 2, "cpu_op", **({"Input Dims": dims} if dims else {}))
            event("cudaLaunchKernel", call + 0.5, 1, "cuda_runtime", correlation=number)
            event(work, at, length, "kernel", correlation=number, device=0, stream=stream,
                  grid=[112, 1, 1], block=[384, 1, 1])  # fmt: skip
        at += duration + 5
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "device.json"
        file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        return nadi.load_job(file)


def check_made(checks: Checks) -> None:
    rng = np.random.default_rng(0)
    ratios = {f"kernel_{number}": 1 + number / 10 for number in range(8)}
    times: list[tuple[str, float, float, Any]] = []
    for _ in range(20):
        for name, ratio in ratios.items():
            alone, slowed = 200 * rng.normal(1, 0.005, 2)
            times += [(name, alone, 0.0, [[64, 64]]), (name, slowed * ratio, 1e3, [[64, 64]])]
    job = made([(n, d, min(b, d), s) for n, d, b, s in times])
    table = learn_contention(job).kernels
    found = dict(table.select("name", "ratio").iter_rows())
    for name, ratio in ratios.items():
        error = abs(found[name] / ratio - 1)
        checks.add(f"made with {ratio:.1f}", error <= 0.01, f"{found[name]:.4f}, {error:.2%} off")
    graph = nadi.build_graph(job)
    freed = nadi.what_if(graph, "remove nccl").replay.time
    is_kernel = graph.named("kernel_")
    ops = np.flatnonzero(is_kernel)
    took, takes = (time[2 * ops + 1] - time[2 * ops] for time in (graph.time, freed))
    alone = np.array([ratios[name] for name in graph.op_names.filter(pl.Series(is_kernel))])
    is_slowed = np.isclose(took / 200e3, alone, rtol=0.05) & (alone > 1.15)
    off = float(np.abs(takes[is_slowed] / took[is_slowed] * alone[is_slowed] - 1).max())
    checks.add("removed communication frees them", off <= 0.01, f"by 1 / ratio, {off:.2%} off")
    confounded = {
        "shapes are not recorded": (None, None), "other shapes beside it": ([[64, 64]], [[8, 8]]),
    }  # fmt: skip
    for what, (one, other) in confounded.items():
        job = made([("gemm", 219.0, 0.0, one), ("gemm", 390.0, 390.0, other)] * 5)
        (row,) = learn_contention(job).kernels.iter_rows(named=True)
        checks.add(what, row["ratio"] is None, f"unknown: {row['unknown']}")
    times = [("gemm", time, 0.0, [[64, 64]]) for time in (100.0, 300.0, 900.0) * 3]
    job = made(times + [("gemm", 400.0, 400.0, [[64, 64]])] * 3)
    (row,) = learn_contention(job).kernels.iter_rows(named=True)
    checks.add("equal shapes, other work", row["ratio"] is None, f"unknown: {row['unknown']}")


def main() -> None:
    checks = Checks()
    folder = Path(sys.argv[1]) if sys.argv[1:] else SHARED / "traces" / "gpu_resnet_pair"
    job = nadi.load_job(folder)
    found = leave_one_out(job)
    checks.add(
        f"{folder.name}: leave one out", found["own ratio"] <= MOST_ERROR,
        f"error {found['alone']:.1%} with the time alone, {found['own ratio']:.1%} with the ratio "
        f"({found['times']} times of {found['kernels']} kernels)",
    )  # fmt: skip
    graph = nadi.build_graph(job)
    same = (nadi.what_if(graph, "scale kind=communication 1").replay.time == graph.time).all()
    checks.add(f"{folder.name}: replay without a change", bool(same), "each time to the nanosecond")
    check_made(checks)
    checks.finish()


if __name__ == "__main__":
    main()
